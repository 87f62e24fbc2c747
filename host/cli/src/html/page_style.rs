//! The style of the page: one column that fits a phone, light or dark as the reader has it.

/// The text between the tags of the style.
pub const STYLE: &str = "
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 50rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 1.5rem 0 .5rem; border-bottom: 1px solid var(--line); }
h3 { font-size: .85rem; margin: 0; opacity: .75; }
small { font-weight: normal; opacity: .65; white-space: nowrap; }
section { margin: .75rem 0; padding: .5rem .75rem; border: 1px solid var(--line); }
section.user { background: var(--soft); }
.text, pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .25rem 0; }
pre { font: .8rem/1.4 ui-monospace, monospace; background: var(--soft); padding: .5rem; }
details { margin: .4rem 0; padding-left: .75rem; border-left: 3px solid var(--line); }
summary { cursor: pointer; overflow-wrap: anywhere; font-size: .9rem; }
.note { margin: .3rem 0; font-size: .8rem; opacity: .8; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; }
th, td { text-align: left; vertical-align: top; padding: .15rem .75rem .15rem 0; }
.facts td { overflow-wrap: anywhere; }
.facts th { font-weight: normal; opacity: .75; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
";
