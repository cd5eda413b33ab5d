//! athanor-proto
