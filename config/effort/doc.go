// Package effort says how many cases a run of the tests tries. Only tests use it.
//
// There are three sizes. The short one (go test -short) starts no child process
// and no PostgreSQL, and draws a twentieth of the cases. The default one proves
// every rule, with few cases; with the race detector, which looks for goroutines
// that meet, it draws as few as the short one. The long one (-long, see
// `make prove`) draws new cases at every run, and many.
//
// Short and default runs draw the same cases each time, so that a run that fails fails again. The long run searches
// further, with new cases.
//
// It also has what every test says: OK, Must, Is, ErrIs, Denied, ErrorIf.
package effort
