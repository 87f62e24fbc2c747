//! Conversions between the bindings of a host and the types of commands, as a macro: every host's
//! bindings have the same names and fields, and no type in common.

/// Defines the trait `ConvertRecord` and implements it between the bindings of `wit/` and the types
/// of [`contract`](crate::contract). The modules `types`, `registry`, `history`, `ledger`, `runner`
/// and `transcript` of the bindings must be in scope.
#[macro_export]
macro_rules! convert_records {
    () => {
        /// Converts a value of the bindings to that of commands, or back.
        pub trait ConvertRecord<T> {
            /// Converts it.
            fn convert(self) -> T;
        }

        $crate::convert_records! { @same bool, u32, u64, i64, String }

        impl<A: ConvertRecord<B>, B> ConvertRecord<Option<B>> for Option<A> {
            fn convert(self) -> Option<B> {
                self.map(ConvertRecord::convert)
            }
        }

        impl<A: ConvertRecord<B>, B> ConvertRecord<Vec<B>> for Vec<A> {
            fn convert(self) -> Vec<B> {
                self.into_iter().map(ConvertRecord::convert).collect()
            }
        }

        $crate::convert_records! { @answers
            types::Instant => UnixTime { seconds, nanos }
            types::Usage => TokenUsage { input, output, read, write, reasoning }
            types::Cost => ThreadUsage { turns, usage, spend, duration }
            types::Limits => ThreadLimits { turns, tokens, spend, spawns, depth, duration }
            types::Account => AccountRecord {
                chain, parent, limit, spent, held, reserved, reported, users, frozen
            }
            types::Cause => StopCause { reason, code, message, failure, retry, raise_above }
            types::Lease => RunLease { thread, holder, expiry }
            types::Run => RunRecord { number, lease, step }
            types::Part => BasePart { thread, first, last }
            types::Base => ThreadBase { length, parts }
            types::Thread => Thread {
                id, directive, parent, chain, previous, next, status, cause, agent, task, title,
                model, limits, capabilities, inputs, outcome, result, cost, run, version, base,
                context, window, created, updated, more
            }
            types::Entry => Entry { version, reason, time, hash, body }
            types::Failure => RecordDamage { code, message }
            types::Unreadable => UnreadableThread { thread, why }
            registry::Row => ListedThread {
                id, status, code, waits_for, directive, parent, agent, task, title, model, cost,
                context, window, version, created, updated
            }
            registry::RowPage => ListPage { threads, unreadable, cursor }
            history::Snapshot => ThreadSnapshot { thread, version, state }
            history::EntryPage => EntryPage { entries, cursor }
            history::Opened => OpenedThread { version, token }
            history::Written => CommittedChange { version, status, mail }
            ledger::Branch => TreeBranch { thread, depth, status, spend, account }
            ledger::TreePage => TreePage { branches, unreadable, cursor }
            ledger::Admission => HeldMoney { version, amount, output }
            ledger::ChargePage => ChargePage { calls, spend, most, cursor }
            transcript::Piece => TranscriptPiece { text, version, cursor }
        }

        $crate::convert_records! { @arguments
            UnixTime => types::Instant { seconds, nanos }
            TokenUsage => types::Usage { input, output, read, write, reasoning }
            ThreadLimits => types::Limits { turns, tokens, spend, spawns, depth, duration }
            ThreadDraft => registry::Draft {
                id, directive, agent, task, title, model, limits, capabilities, approvals,
                incomplete, inputs
            }
            ChangeSet => history::ChangeSet { events, patches, operations, snapshot, request }
            ModelCall => ledger::ModelCall { model, input, output }
            RaisedCaps => runner::Raised { caps, through }
        }

        $crate::convert_records! { @variants
            ThreadFilter => registry::Filter {
                Status(it), Parent(it), Directive(it), Agent(it), Task(it), Chain(it), Other(it);
                All
            }
            ExpectedVersion => history::Expected { Exact(it); Any }
            CostEstimate => ledger::Estimate { Tokens(it), Amount(it); }
            CallBill => ledger::Bill { Usage(it), Amount(it); }
            SignalContent => runner::SignalKind {
                Message(it), Decision(it), Raise(it); Cancel, Kill
            }
        }
    };
    (@same $($type:ty),*) => {$(
        impl ConvertRecord<$type> for $type {
            fn convert(self) -> $type {
                self
            }
        }
    )*};
    (@answers $($module:ident :: $from:ident => $to:ident { $($field:ident),* })*) => {$(
        impl ConvertRecord<$crate::contract::$to> for $module::$from {
            fn convert(self) -> $crate::contract::$to {
                $crate::contract::$to { $($field: self.$field.convert()),* }
            }
        }
    )*};
    (@arguments $($from:ident => $module:ident :: $to:ident { $($field:ident),* })*) => {$(
        impl ConvertRecord<$module::$to> for $crate::contract::$from {
            fn convert(self) -> $module::$to {
                $module::$to { $($field: self.$field.convert()),* }
            }
        }
    )*};
    (@variants $($from:ident => $module:ident :: $to:ident {
        $($filled:ident($value:ident)),*; $($empty:ident),*
    })*) => {$(
        impl ConvertRecord<$module::$to> for $crate::contract::$from {
            fn convert(self) -> $module::$to {
                match self {
                    $(Self::$filled($value) => $module::$to::$filled($value.convert()),)*
                    $(Self::$empty => $module::$to::$empty,)*
                }
            }
        }
    )*};
}
