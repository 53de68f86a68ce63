//! Images built from sources, and sources that are refused.

mod build;
mod changing;
mod quota;
mod size;
