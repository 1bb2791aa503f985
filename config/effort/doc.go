// Package effort says how many cases a run of the tests tries. Only tests use it.
//
// There are three sizes. The short one (go test -short) starts no child process and no PostgreSQL, and draws a
// twentieth of the cases. The default one proves every rule, with few cases. With the race detector, which looks at
// goroutines and not at values, it draws as few cases as the short one. The long one (-long, see `make prove`) draws
// new cases at every run, and many.
//
// Short and default runs draw the same cases each time, so that a failure repeats.
//
// It also has what every test says: OK, Must, Is, ErrIs, Denied, ErrorIf.
package effort
