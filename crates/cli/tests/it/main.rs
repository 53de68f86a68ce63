//! Runs the command as its users do.

mod as_named;
mod build;
mod change;
mod common;
mod compat;
mod defrag;
mod disk;
mod dump;
mod get;
mod help;
mod install;
mod killed;
mod layouts;
mod look;
mod manual;
mod mkfs;
mod package;
mod repair;
mod report;
mod undelete;
