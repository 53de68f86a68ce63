//! One function a structure: takes any bytes, parses them, and uses whatever was accepted. None may
//! panic, hang, or allocate by an unchecked count. The fuzz targets and the hostile tests share them.

#![allow(dead_code)]

pub mod damage;
pub mod journal;
pub mod names;
pub mod volume;
