//! Components that mean harm, and what an engine and its other tenants make of them.

mod attacks;
mod neighbour;
mod newcomers;
mod reuse;
mod rogue;
mod world;
