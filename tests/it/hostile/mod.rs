//! Hostile components, and their effect on an engine and its other tenants.

mod attacks;
mod neighbour;
mod newcomers;
mod reuse;
mod rogue;
mod world;
