//! A set of names, in order.

use std::collections::BinaryHeap;

/// Names in order, each once. It orders them with a heap and finds them by halving: a set or a sort
/// of the standard library would be thousands of bytes of the component.
#[derive(Debug, Default)]
pub struct OrderedNames(Vec<String>);

impl OrderedNames {
    /// Orders names.
    pub fn new(names: Vec<String>) -> Self {
        let mut names = BinaryHeap::from(names).into_sorted_vec();
        names.dedup();
        Self(names)
    }

    /// Adds a name; returns false if it is there already. The names after it are moved, so each
    /// insertion takes the longer the more there are: a caller has ten thousand at most.
    pub fn insert(&mut self, name: &str) -> bool {
        let place = self.find_place(name);
        if let Err(place) = place {
            self.0.insert(place, name.to_owned());
        }
        place.is_err()
    }

    /// Tells whether a name is one of them.
    pub fn contains(&self, name: &str) -> bool {
        self.find_place(name).is_ok()
    }

    /// Returns the names, in order.
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// Returns the names, in order.
    pub fn into_vec(self) -> Vec<String> {
        self.0
    }

    fn find_place(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|other| other.as_str().cmp(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn the_names_are_those_of_a_set(
            first in prop::collection::vec("[ab]{0,3}", 0..20),
            later in prop::collection::vec("[ab]{0,3}", 0..20),
        ) {
            let mut expected: BTreeSet<String> = first.iter().cloned().collect();
            let mut names = OrderedNames::new(first);
            for name in later {
                prop_assert_eq!(names.contains(&name), expected.contains(&name));
                prop_assert_eq!(names.insert(&name), expected.insert(name));
            }
            prop_assert!(expected.iter().eq(names.as_slice()));
            prop_assert!(expected.into_iter().eq(names.into_vec()));
        }
    }
}
