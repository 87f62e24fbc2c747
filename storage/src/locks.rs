//! Locks that a thread waits for asleep, with the interface of `parking_lot`.
//!
//! One of `parking_lot` that is taken is waited for by giving the core away a few times. On a
//! machine whose cores are busy it is given to a call of the lowest priority, which keeps it for
//! milliseconds: the calls of a tenant would wait for those of another that computes without end. A
//! thread that sleeps is woken by the one that had the lock, and the system takes the core from a
//! call of the lowest priority for it at once.
//!
//! A panic does not poison a lock, as with `parking_lot`: nobody panics between two changes that
//! belong together.

use std::ops::{Deref, DerefMut};
use std::sync::{self, PoisonError, TryLockError, WaitTimeoutResult};
use std::time::{Duration, Instant};

/// A lock that one thread has at a time.
#[derive(Debug, Default)]
pub struct SleepingMutex<T: ?Sized>(sync::Mutex<T>);

/// The lock of a [`SleepingMutex`], until it is dropped.
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized>(
    /// Nothing only while a [`SleepingCondvar`] waits.
    Option<sync::MutexGuard<'a, T>>,
);

impl<T> SleepingMutex<T> {
    /// Makes a lock of a value.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> SleepingMutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Returns the lock, unless another thread has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(held) => Some(MutexGuard(Some(held))),
            Err(TryLockError::Poisoned(held)) => Some(MutexGuard(Some(held.into_inner()))),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns the value of a lock that nobody else can have.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("nobody sees a guard that waits")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("nobody sees a guard that waits")
    }
}

/// Lets threads wait for a change of what a [`SleepingMutex`] protects.
#[derive(Debug, Default)]
pub struct SleepingCondvar(sync::Condvar);

impl SleepingCondvar {
    /// Makes one that nobody waits for.
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Wakes a thread that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Gives the lock back until it is woken. It may be woken for no reason, so the caller looks
    /// whether it has what it waits for, and waits again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("nobody sees a guard that waits");
        let held = self.0.wait(held).unwrap_or_else(PoisonError::into_inner);
        guard.0 = Some(held);
    }

    /// The same for at most a time; the answer tells whether it has passed.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, most: Duration) -> WaitTimeoutResult {
        let held = guard.0.take().expect("nobody sees a guard that waits");
        let waited = self.0.wait_timeout(held, most);
        let (held, result) = waited.unwrap_or_else(PoisonError::into_inner);
        guard.0 = Some(held);
        result
    }

    /// Gives the lock back until the condition is false or a time has passed.
    pub fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        most: Duration,
    ) {
        let began = Instant::now();
        while condition(guard) {
            let left = most.saturating_sub(began.elapsed());
            if left.is_zero() {
                return;
            }
            self.wait_for(guard, left);
        }
    }

    /// Gives the lock back until the condition is false.
    pub fn wait_while<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }
}

/// A lock that several threads have to read, or one to write.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Makes a lock of a value.
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until the value may be read.
    pub fn read(&self) -> sync::RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the value may be written.
    pub fn write(&self) -> sync::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_panic_does_not_poison() {
        let (lock, shared) = (Arc::new(SleepingMutex::new(1)), Arc::new(RwLock::new(1)));
        let (own, own_shared) = (Arc::clone(&lock), Arc::clone(&shared));
        let panicked = std::thread::spawn(move || {
            let (_held, _written) = (own.lock(), own_shared.write());
            panic!("as a call may");
        });
        assert!(panicked.join().is_err());
        assert_eq!(*lock.lock(), 1);
        assert_eq!(*lock.try_lock().unwrap(), 1);
        assert_eq!(*shared.read(), 1);
        assert_eq!(Arc::into_inner(lock).unwrap().into_inner(), 1);
    }

    #[test]
    fn a_lock_is_had_once_and_given_back_while_its_thread_waits() {
        let pair = Arc::new((SleepingMutex::new(0), SleepingCondvar::new()));
        let held = pair.0.lock();
        assert!(pair.0.try_lock().is_none());
        drop(held);
        let own = Arc::clone(&pair);
        let mut count = pair.0.lock();
        let other = std::thread::spawn(move || {
            for _ in 0..3 {
                *own.0.lock() += 1;
                own.1.notify_all();
            }
        });
        pair.1
            .wait_while_for(&mut count, |count| *count < 2, Duration::MAX);
        assert!(*count >= 2);
        pair.1.wait_while(&mut count, |count| *count < 3);
        assert_eq!(*count, 3);
        other.join().unwrap();
        assert!(pair.1.wait_for(&mut count, Duration::ZERO).timed_out());
        pair.1
            .wait_while_for(&mut count, |count| *count == 3, Duration::from_millis(1));
        assert_eq!(*count, 3);
    }
}
