//! athanor-chassis
