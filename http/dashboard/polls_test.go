package dashboard_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"rollcall/http/dashboard"
)

// crowd is open pages that obey their pace, in steps of a tenth of a second. Answers take up to 0.3 s on the way.
type crowd struct {
	polls   dashboard.Polls
	random  *rand.Rand
	now     int           // tenths of a second
	due     map[int][]int // pages by when they ask
	wanted  int           // when something new is told to be there, in seconds
	closed  func(page int) bool
	asked   []int // how often all asked, by second
	changes []int // how many pages were told another pace than before, by second
	pace    map[int]int
}

func newCrowd(wanted int) *crowd {
	return &crowd{random: rand.New(rand.NewPCG(1, 2)), due: map[int][]int{}, wanted: wanted, pace: map[int]int{},
		closed: func(int) bool { return false }}
}

// opens lets pages be opened, evenly over some seconds.
func (c *crowd) opens(pages, seconds int) {
	for page := range pages {
		at := c.now + page*seconds*10/pages
		c.due[at] = append(c.due[at], page)
	}
}

// run lets time pass.
func (c *crowd) run(seconds int) {
	for end := c.now + seconds*10; c.now < end; c.now++ {
		if c.now%10 == 0 {
			c.asked, c.changes = append(c.asked, 0), append(c.changes, 0)
		}
		for _, page := range c.due[c.now] {
			if c.closed(page) {
				continue
			}
			pace := c.polls.Next(time.Unix(1_700_000_000, 0).Add(time.Duration(c.now)*time.Second/10), page, c.wanted)
			c.asked[len(c.asked)-1]++
			if c.pace[page] != 0 && c.pace[page] != pace {
				c.changes[len(c.changes)-1]++
			}
			c.pace[page] = pace
			at := c.now + pace*10 + c.random.IntN(4)
			c.due[at] = append(c.due[at], page)
		}
		delete(c.due, c.now)
	}
}

// of sums the last seconds.
func of(counts []int, seconds int) (sum int) {
	for _, n := range counts[len(counts)-seconds:] {
		sum += n
	}
	return sum
}

func TestManyPagesAskNoFasterThanTheNodeBears(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		pages, over  int // that are opened over some seconds
		wanted, pace int // the pace that is told, and the one that comes of it
		at           int // how often they ask in one second at most while they come
	}{
		{"one page", 1, 1, 2, 2, 1},
		{"one page of a file that changes rarely", 1, 1, 47, 60, 1},
		{"100", 100, 10, 2, 2, 60},
		{"200", 200, 10, 2, 5, 120},
		{"1,000 in a minute", 1000, 60, 2, 20, 250},
		{"1,000 at once", 1000, 1, 2, 20, 1000},
		{"1,000 of files that change rarely", 1000, 60, 30, 30, 100},
		{"5,000 in five minutes", 5000, 300, 2, 120, 300},
		{"10,000 in five minutes", 10_000, 300, 2, 300, 600},
		{"10,000 at once", 10_000, 1, 2, 300, 10_000},
		{"100,000 in five minutes", 100_000, 300, 2, 300, 1500},
	} {
		crowd := newCrowd(c.wanted)
		crowd.opens(c.pages, c.over)
		crowd.run(c.over + 600)
		most := 0
		for _, n := range crowd.asked {
			most = max(most, n)
		}
		rate := float64(of(crowd.asked, 300)) / 300
		if bears := 50.0; rate > bears && c.pages < 15_000 || rate > float64(c.pages)/float64(c.pace) {
			t.Errorf("%s: they ask %.1f times a second", c.name, rate)
		}
		if changes := of(crowd.changes, 300); changes != 0 {
			t.Errorf("%s: %d times the pace of a page changes in the last five minutes", c.name, changes)
		}
		for page, pace := range crowd.pace {
			if pace != c.pace {
				t.Errorf("%s: page %d asks every %d s, want %d", c.name, page, pace, c.pace)
				break
			}
		}
		if most > c.at {
			t.Errorf("%s: %d asked in one second, want %d at most", c.name, most, c.at)
		}
		t.Logf("%s: %.1f times a second, at most %d", c.name, rate, most)
	}
}

// About as many pages as a pace bears are open, and some are looked at for a moment: the pace of all must not change with each.
func TestThePaceDoesNotFlap(t *testing.T) {
	t.Parallel()
	const stay = 240
	c := newCrowd(2)
	c.closed = func(page int) bool { return page >= stay && c.pace[page] != 0 }
	c.opens(stay, 10)
	c.run(60)
	for visit := range 60 {
		for page := range 30 {
			c.due[c.now] = append(c.due[c.now], stay+30*visit+page)
		}
		c.run(15)
	}
	if told := of(c.changes, 900); told > stay {
		t.Errorf("%d times a page was told another pace by 60 visits, want once each at most", told)
	}
}

func TestPagesAskFastAgainWhenOthersAreClosed(t *testing.T) {
	t.Parallel()
	c := newCrowd(2)
	c.opens(10_000, 300)
	c.run(600)
	c.closed = func(page int) bool { return page >= 10 }
	c.run(1000)
	for page := range 10 {
		if c.pace[page] != 2 {
			t.Errorf("page %d still asks every %d s", page, c.pace[page])
		}
	}
	if got := of(c.asked, 10); got < 40 || got > 60 {
		t.Errorf("10 pages ask %d times in 10 s, want 50", got)
	}
}

// A node that slept, and one whose clock goes back, count on.
func TestPollsBearAClockThatJumps(t *testing.T) {
	t.Parallel()
	var p dashboard.Polls
	at := time.Unix(1_700_000_000, 0)
	for i, jump := range []time.Duration{0, 10 * time.Hour, -10 * time.Hour, 400 * time.Second, -time.Hour} {
		at = at.Add(jump)
		for page := range 80 {
			if pace := p.Next(at, 1000*i+page, 2); pace != 2 {
				t.Fatalf("after a jump of %v: %d", jump, pace)
			}
		}
	}
	if pace := p.Next(at.Add(20*time.Hour), 1, 2); pace != 2 {
		t.Errorf("at the end: %d", pace)
	}
}

// Somebody who asks all the time is one page.
func TestNobodyMakesOthersAskLessOftenAlone(t *testing.T) {
	t.Parallel()
	var p dashboard.Polls
	for i := range 100_000 {
		if pace := p.Next(time.Unix(1_700_000_000+int64(i/1000), 0), 1, 2); pace != 2 {
			t.Fatalf("after %d questions of one page: %d", i, pace)
		}
	}
}
