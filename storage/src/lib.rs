//! athanor-storage
