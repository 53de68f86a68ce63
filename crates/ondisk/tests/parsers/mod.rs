//! One function per structure: it parses any bytes and uses every accepted structure. None may
//! panic, hang, or allocate by an unchecked count. The fuzz targets and the hostile tests share
//! them.

#![allow(dead_code)]

pub mod damage;
pub mod journal;
pub mod names;
pub mod volume;
