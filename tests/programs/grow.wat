;; Takes memory, a megabyte at a time, and does not mind being refused.
(module
  (memory (export "memory") 1)
  (func (export "threadkeep:threads/registry@0.1.0#get") (param i32 i32) (result i32)
    (loop
      (drop (memory.grow (i32.const 16)))
      (br 0))
    (unreachable)))
