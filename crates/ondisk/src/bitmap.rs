//! Bitmaps.
