//! Functions of `std`'s thread-local keys that the explorer's do not have.

use shuttle::thread::LocalKey;
use std::cell::{Cell, RefCell};

pub(crate) trait CellKey<T> {
    fn get(&'static self) -> T
    where
        T: Copy;
    fn set(&'static self, value: T);
    fn replace(&'static self, value: T) -> T;
    fn take(&'static self) -> T
    where
        T: Default;
}

impl<T> CellKey<T> for LocalKey<Cell<T>> {
    fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }

    fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }

    fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(Cell::take)
    }
}

pub(crate) trait RefCellKey<T> {
    fn with_borrow_mut<R>(&'static self, change: impl FnOnce(&mut T) -> R) -> R;
}

impl<T> RefCellKey<T> for LocalKey<RefCell<T>> {
    fn with_borrow_mut<R>(&'static self, change: impl FnOnce(&mut T) -> R) -> R {
        self.with(|cell| change(&mut cell.borrow_mut()))
    }
}
