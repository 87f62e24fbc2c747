;; Makes a million handles of a resource of its own while it starts.
(component
  (type $resource (resource (rep i32)))
  (core func $new (canon resource.new $resource))
  (core module $module
    (import "resource" "new" (func $new (param i32) (result i32)))
    (func $start
      (local $made i32)
      (loop $again
        (drop (call $new (i32.const 1)))
        (local.set $made (i32.add (local.get $made) (i32.const 1)))
        (br_if $again (i32.lt_u (local.get $made) (i32.const 1000000)))))
    (start $start))
  (core instance (instantiate $module
    (with "resource" (instance (export "new" (func $new)))))))
