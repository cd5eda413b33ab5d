//! athanor-block
