//! Work on a volume that is not in use otherwise: making, resizing and changing it, and bulk loads.
//! The growth of a volume that is in use lies with the other changes of size.

pub mod bulk;
pub mod compact;
pub mod mkfs;
pub mod resize;
pub mod tune;
