//! The requests of `diorite bench transactions`: rows in pairs, one of each in another tablet, and one hot row.
//!
//! [`pairs`] says which rows there are and which of them must be found; [`table`] writes and reads them by one kind of
//! request; [`hot`] adds to one row from several clients.
//!
//! Always true: a row is written once, so what a read may find depends only on whether its request was acknowledged.

pub mod hot;
pub mod pairs;
pub mod table;
