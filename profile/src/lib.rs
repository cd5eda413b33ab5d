//! athanor-profile
