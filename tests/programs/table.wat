;; Takes places in its table, and does not mind being refused.
(module
  (memory (export "memory") 1)
  (table $table 1 funcref)
  (func (export "threadkeep:threads/registry@0.1.0#get") (param i32 i32) (result i32)
    (loop
      (drop (table.grow $table (ref.null func) (i32.const 1000)))
      (br 0))
    (unreachable)))
