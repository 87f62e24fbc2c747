//! Hostile components, and their effect on an engine and its other tenants.

mod attacks;
mod fixture;
mod neighbour;
mod rejected_code;
mod reuse;
mod ungranted_steps;
