//! athanor-integration
