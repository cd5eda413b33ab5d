//! athanor-query
