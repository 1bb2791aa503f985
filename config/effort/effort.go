package effort

import (
	"errors"
	"flag"
	"fmt"
	"iter"
	"math"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var long = flag.Bool("long", false, "try much more than a default run does; takes minutes (docs/developers/testing.md)")

const (
	shortPart  = 20               // short and race runs draw the default's cases divided by this
	longTimes  = 50               // a long run draws the default's cases times this
	cases      = 100              // of a property, in a default run
	everRepeat = 1                // the seed of short and default runs
	budget     = 10 * time.Second // for all Seeds of a package, in a default run
)

// Long reports whether this run is a long one.
func Long() bool { return *long }

// Children skips the test in a short run, which starts no other process and no database server.
func Children(t testing.TB) {
	t.Helper()
	NotShort(t, "starts other processes")
}

// NotShort skips the test in a short run, and says why.
func NotShort(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip(why + ": left out with -short")
	}
}

// Unraced skips the test in a run with the race detector, which finds nothing in it, and says why. CI runs every test
// without the detector too.
func Unraced(t testing.TB, why string) {
	t.Helper()
	if Raced {
		t.Skip(why + ": left out with the race detector")
	}
}

// beside holds the tests that run beside others.
var beside sync.Map

// Beside lets a test run beside others of its package. It may be called several times, because rigs call it. A
// benchmark runs alone.
func Beside(t testing.TB) {
	t.Helper()
	test, is := t.(*testing.T)
	if !is {
		return
	}
	if _, again := beside.LoadOrStore(test, true); !again {
		t.Cleanup(func() { beside.Delete(test) })
		test.Parallel()
	}
}

// few reports whether this run tries few cases: a short run, or one with the race detector, which looks at goroutines
// and not at values.
func few() bool { return !*long && (testing.Short() || Raced) }

// Cases returns how many of n cases this run tries. Short runs and runs with the race detector try a twentieth, at
// least one; long runs try fifty times n.
func Cases(n int) int {
	switch {
	case *long:
		return n * longTimes
	case few():
		return max(1, n/shortPart)
	default:
		return n
	}
}

// Some returns the items of a table that this run tries: all, or every twentieth in runs that try few cases.
func Some[T any](items []T) []T {
	if !few() {
		return items
	}
	var some []T
	for i := 0; i < len(items); i += shortPart {
		some = append(some, items[i])
	}
	return some
}

// EveryNth returns a function that reports, case by case, whether this run tries it: every nth in a default run, all in
// a long one. For a product of several lists choose an n that shares no factor with their lengths, or some items are
// never tried.
func EveryNth(n int) func() bool {
	switch {
	case *long:
		n = 1
	case few():
		n *= shortPart
	}
	at := 0
	return func() bool {
		at++
		return at%n == 0
	}
}

// failer is a testing.TB or a rapid.T.
type failer interface {
	Helper()
	Fatal(args ...any)
	Errorf(format string, args ...any)
}

// Must returns the value of a call, whose error ends the test: v := effort.Must(f())(t).
func Must[T any](v T, err error) func(t failer) T {
	return func(t failer) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// OK ends the test on an error; of names the subject.
func OK(t failer, err error, of ...any) {
	t.Helper()
	if err != nil {
		t.Fatal(append(of, err)...)
	}
}

// Is reports a fault unless got is want; of names the subject.
func Is[T comparable](t failer, got, want T, of ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%v got %#v, want %#v", of, got, want)
	}
}

// Not reports a fault if got is the unwanted value; of names the subject.
func Not[T comparable](t failer, got, bad T, of ...any) {
	t.Helper()
	if got == bad {
		t.Errorf("%v got %#v", of, got)
	}
}

// MustBe does what Is does, but ends the test if it finds a fault.
func MustBe[T comparable](t failer, got, want T, of ...any) {
	t.Helper()
	if got != want {
		t.Fatal(fmt.Sprintf("%v got %#v, want %#v", of, got, want))
	}
}

// Same does what Is does, for values that == can't compare.
func Same[T any](t failer, got, want T, of ...any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v got %+v, want %+v", of, got, want)
	}
}

// Equal does what Is does, for lists. A nil list equals an empty one.
func Equal[L ~[]E, E comparable](t failer, got, want L, of ...any) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%v got %+v, want %+v", of, got, want)
	}
}

// Has reports a fault unless text contains part. of names the text.
func Has(t failer, text, part string, of ...any) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%v: no %q in\n%s", of, part, text)
	}
}

// Lacks reports a fault if text contains part. of names the text.
func Lacks(t failer, text, part string, of ...any) {
	t.Helper()
	if strings.Contains(text, part) {
		t.Errorf("%v: %q in\n%s", of, part, text)
	}
}

// ErrHas reports a fault unless there is an error with part in its text; of names the subject.
func ErrHas(t failer, err error, part string, of ...any) {
	t.Helper()
	if err == nil {
		t.Errorf("%v got no error, want one with %q", of, part)
		return
	}
	Has(t, err.Error(), part, of...)
}

// ErrIs reports a fault unless err is want; of names the subject.
func ErrIs(t failer, err, want error, of ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%v got %v, want %v", of, err, want)
	}
}

// Denied is ErrIs for a call that also gives a value: effort.Denied(f())(t, want).
func Denied[T any](_ T, err error) func(t failer, want error, of ...any) {
	return func(t failer, want error, of ...any) {
		t.Helper()
		ErrIs(t, err, want, of...)
	}
}

// spent is how long all Seeds of this test binary have taken.
var spent struct {
	sync.Mutex
	time.Duration
}

// Seeds returns 1 to Cases(n), for a slow simulation. The simulations of one package share ten seconds, or fifty
// times as long in a long run. When that time is used up, as on a busy machine, a simulation ends after a tenth of
// its seeds, and the log says so.
func Seeds(t testing.TB, n int) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		all := Cases(n)
		least := max(1, all/10)
		for seed := 1; seed <= all; seed++ {
			if seed > least && over() {
				t.Logf("this package's simulations have used up their time: %d of %d seeds were tried", seed-1, all)
				return
			}
			begin := time.Now()
			more := yield(uint64(seed))
			spent.Lock()
			spent.Duration += time.Since(begin)
			spent.Unlock()
			if !more {
				return
			}
		}
	}
}

// over reports whether the simulations of this package have used up their time.
func over() bool {
	spent.Lock()
	defer spent.Unlock()
	return spent.Duration > time.Duration(Cases(int(budget)))
}

// AtOnce lets n tests of a package run at the same time, because they mostly wait. -parallel overrides it. TestMain
// calls it first.
func AtOnce(n int) {
	CollectSeldom()
	if !given("test.parallel") {
		set("test.parallel", n)
	}
}

// CollectSeldom lets the heap grow to four times its live size before a collection, since tests end soon. GOGC
// overrides it; benchmarks keep the default. TestMain calls it.
func CollectSeldom() {
	flag.Parse()
	if os.Getenv("GOGC") == "" && !given("test.bench") {
		debug.SetGCPercent(400)
	}
}

func given(name string) (is bool) {
	flag.Visit(func(f *flag.Flag) { is = is || f.Name == name })
	return is
}

// set sets a flag of package testing or of rapid.
func set(name string, n int) {
	if err := flag.Set(name, strconv.Itoa(n)); err != nil {
		panic(err) // the flag no longer exists
	}
}

var drawOnce sync.Once

// Check checks a property with rapid: 100 cases by default, 5 in runs that try few cases, 5,000 in a long run.
// -rapid.checks and -rapid.seed override that.
func Check(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	drawOnce.Do(draw)
	rapid.Check(t, property)
}

// draw sets those flags of rapid that the command line does not set.
func draw() {
	checks, seed := Cases(cases), everRepeat
	if *long {
		seed = 0
	}
	if testing.Short() {
		checks *= 5 // in a short run rapid divides this by five
	}
	if !given("rapid.checks") {
		set("rapid.checks", checks)
	}
	if !given("rapid.seed") {
		set("rapid.seed", seed)
	}
	if err := flag.Set("rapid.nofailfile", "true"); err != nil { // the seed is enough, and the tree stays clean
		panic(err)
	}
}

// Scaled returns a copy of a struct with each of its times multiplied by a factor: with 0.2, whatever waits for these
// times is five times as fast. Other fields stay as they are.
func Scaled[T any](times T, factor float64) T {
	v := reflect.ValueOf(&times).Elem()
	for i := range v.NumField() {
		if d, is := v.Field(i).Interface().(time.Duration); is {
			v.Field(i).SetInt(int64(math.Round(float64(d) * factor)))
		}
	}
	return times
}

// ErrorIf reports a fault if there is one, with the words of fmt.Printf.
func ErrorIf(t failer, bad bool, format string, args ...any) {
	t.Helper()
	if bad {
		t.Errorf("%s", fmt.Sprintf(format, args...))
	}
}

// FatalIf does what ErrorIf does, but ends the test if it finds a fault.
func FatalIf(t failer, bad bool, format string, args ...any) {
	t.Helper()
	if bad {
		t.Fatal(fmt.Sprintf(format, args...))
	}
}

// First drops the second of two values, for Must and Denied: v := effort.Must(effort.First(f()))(t).
func First[A, B any](a A, _ B, err error) (A, error) { return a, err }
