;; Computes for ever.
(module
  (memory (export "memory") 1)
  (func (export "threadkeep:threads/registry@0.1.0#get") (param i32 i32) (result i32)
    (loop (br 0))
    (unreachable)))
