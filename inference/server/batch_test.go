package main

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// runs counts what a batcher has run: how many runs, how many rows, and the most rows of a run.
type runs struct{ count, rows, most atomic.Int64 }

func (r *runs) observe(rows int) {
	r.count.Add(1)
	r.rows.Add(int64(rows))
	for most := r.most.Load(); int64(rows) > most && !r.most.CompareAndSwap(most, int64(rows)); most = r.most.Load() {
	}
}

// doubling is a batcher of a model with one input and one output, twice the input; it fails for NaN.
func doubling(how batching) (*batcher, *runs) {
	seen := &runs{}
	return &batcher{batching: how, width: 1, outputs: 1, observe: seen.observe, predict: func(values, result []float32) error {
		for i, value := range values {
			if value != value {
				return errors.New("not a number")
			}
			result[i] = 2 * value
		}
		return nil
	}}, seen
}

// together predicts with many goroutines that take turns on one processor, so that whether they meet does not depend on the machine.
func together(t *testing.T, b *batcher, callers, each, rows int, value func(number int) float32) (failed int64) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var group sync.WaitGroup
	var failures atomic.Int64
	for caller := range callers {
		group.Go(func() {
			values, result := make([]float32, rows), make([]float32, rows)
			for i := range each {
				for row := range values {
					values[row] = value((caller*each+i)*rows + row)
				}
				if b.run(uint64(caller+1), values, result) != nil {
					failures.Add(1)
					continue
				}
				for row := range result {
					if result[row] != 2*values[row] {
						t.Errorf("caller %d: %v for %v", caller, result, values)
					}
				}
			}
		})
	}
	group.Wait()
	return failures.Load()
}

func number(n int) float32 { return float32(n) }

func TestConcurrentRowsShareRuns(t *testing.T) {
	for _, rows := range []int{1, 3} {
		b, seen := doubling(batching{rows: 64, wait: time.Hour})
		if failed := together(t, b, 32, 200, rows, number); failed > 0 {
			t.Errorf("%d failed", failed)
		}
		if all := int64(32 * 200 * rows); seen.rows.Load() != all || seen.count.Load()*4 > all {
			t.Errorf("%d rows in %d runs, want %d in at most a fourth as many", seen.rows.Load(), seen.count.Load(), all)
		}
		if most := seen.most.Load(); most > 64 || most < 16 {
			t.Errorf("the largest run had %d rows", most)
		}
	}
	b, seen := doubling(batching{rows: 1, wait: time.Hour})
	together(t, b, 32, 200, 1, number)
	if seen.most.Load() != 1 || seen.count.Load() != 32*200 {
		t.Errorf("turned off: %d runs of up to %d rows", seen.count.Load(), seen.most.Load())
	}
}

func TestLoneRequestsAreNotHeldUp(t *testing.T) {
	b, seen := doubling(batching{rows: 64, wait: time.Hour})
	b.run(1, []float32{1}, make([]float32, 1))
	values, result := []float32{1}, make([]float32, 1)
	if allocated := testing.AllocsPerRun(100, func() {
		if err := b.run(1, values, result); err != nil || b.open != nil {
			t.Errorf("%v, open %v", err, b.open)
		}
	}); allocated > 0 {
		t.Errorf("%v allocations", allocated)
	}
	// A request of many rows is a run of its own whoever else is there.
	many := make([]float32, 40)
	for from := range 4 {
		if err := b.run(uint64(from), many, make([]float32, 40)); err != nil || b.open != nil {
			t.Errorf("%v, open %v", err, b.open)
		}
	}
	if seen.most.Load() != 40 {
		t.Errorf("the largest run had %d rows", seen.most.Load())
	}
}

// TestBatchDoesNotStayOpen joins a batch whose opener does not get to run: who joins runs it once it is late; where it has no room, it is left
// to its opener.
func TestBatchDoesNotStayOpen(t *testing.T) {
	for _, c := range []struct {
		what       string
		age        time.Duration
		rows       int
		took, left bool
	}{
		{"late", time.Second, 1, true, false},
		{"in time, and its opener does not come", 0, 1, true, false},
		{"full", 0, 63, true, false},
		{"no room", 0, 64, false, true},
	} {
		b, seen := doubling(batching{rows: 64, wait: 100 * time.Millisecond})
		p := &batch{began: time.Now().Add(-c.age)}
		for range c.rows {
			p.add([]float32{7}, 1)
		}
		b.open, b.last, b.lastFrom = p, time.Now(), 1
		result := make([]float32, 1)
		if err := b.run(2, []float32{3}, result); err != nil || result[0] != 6 {
			t.Errorf("%s: %v %v", c.what, result, err)
		}
		if p.taken != c.took || (p.done != nil) != c.took || b.open != nil {
			t.Errorf("%s: taken %v, open %v", c.what, p.taken, b.open)
		}
		if c.took && (p.result[0] != 14 || seen.rows.Load() != int64(c.rows+1)) {
			t.Errorf("%s: its opener gets %v of %d rows", c.what, p.result, seen.rows.Load())
		}
	}
}

// TestAPanicLeavesNobodyWaiting joins a batch whose run panics: who ran it has the panic, the others run alone.
func TestAPanicLeavesNobodyWaiting(t *testing.T) {
	b, _ := doubling(batching{rows: 4, wait: time.Hour})
	double := b.predict
	b.predict = func(values, result []float32) error {
		if len(values) > 1 {
			panic("a fault of ours")
		}
		return double(values, result)
	}
	b.open, b.last, b.lastFrom = &batch{began: time.Now()}, time.Now(), 1
	b.open.add([]float32{7}, 1)
	answered, result := make(chan error), make([]float32, 1)
	go func() { answered <- b.run(2, []float32{3}, result) }()
	for waiting := false; !waiting; runtime.Gosched() {
		b.mu.Lock()
		waiting = b.open.rows == 2
		b.mu.Unlock()
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("who ran it knows nothing of the panic")
			}
		}()
		_ = b.run(3, []float32{4, 5}, make([]float32, 2))
	}()
	if err := <-answered; err != nil || result[0] != 6 {
		t.Errorf("%v %v", err, result)
	}
}

// TestNoneFailsForAnother runs rows together of which some make the run fail: only those fail.
func TestNoneFailsForAnother(t *testing.T) {
	b, seen := doubling(batching{rows: 64, wait: time.Hour})
	failed := together(t, b, 16, 100, 1, func(n int) float32 {
		if n%50 == 0 {
			return float32(math.NaN())
		}
		return float32(n)
	})
	if failed != 16*100/50 || seen.most.Load() == 1 {
		t.Errorf("%d failed, want %d; the largest run had %d rows", failed, 16*100/50, seen.most.Load())
	}
}

// TestRequestsThatMeetAreAnsweredRight asks over many connections, with answers that can be told apart, until runs were shared.
func TestRequestsThatMeetAreAnsweredRight(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	e := start(t, modelDir(t, "reuse_v1", "reuse_v2"), func(c *config) { c.batching.wait = 10 * time.Millisecond })
	models := []string{"reuse_v1", "reuse_v2"}
	want := []golden{expected(t, models[0]), expected(t, models[1])}
	figure := func(name string) int {
		_, page := e.call("GET", "/metrics", nil)
		found := regexp.MustCompile(`(?m)^smartcache_endpoint_batch_rows_` + name + ` (\d+)$`).FindStringSubmatch(page)
		if found == nil {
			t.Fatal(page)
		}
		n, _ := strconv.Atoi(found[1])
		return n
	}
	asked := 0
	for round := 0; figure("sum")-figure("count") < 100; round++ {
		if round == 200 {
			t.Fatalf("%d requests in %d runs", asked, figure("count"))
		}
		var group sync.WaitGroup
		for caller := range 16 {
			c := e.dial()
			group.Go(func() {
				defer c.Close()
				for i := range 16 {
					which, row := caller%2, (16*caller+i+round)%256
					values := strings.ReplaceAll(fmt.Sprint(want[which].Inputs[row]), " ", ",")
					if _, err := c.Write([]byte(plainRequest("/json", `{"model":"`+models[which]+`","values":`+values+`}`))); err != nil {
						t.Error(err)
						return
					}
					response, body := c.answer()
					var got []float32
					for _, text := range strings.Split(strings.Trim(body, "[]"), ",") {
						value, _ := strconv.ParseFloat(text, 32)
						got = append(got, float32(value))
					}
					if response.StatusCode != 200 || !near(got, want[which].Outputs[row]) {
						t.Errorf("%s answered %d %s, Keras %v", models[which], response.StatusCode, body, want[which].Outputs[row])
					}
				}
			})
		}
		group.Wait()
		asked += 256
	}
	if sum := figure("sum"); sum != asked {
		t.Errorf("%d requests, %d rows predicted", asked, sum)
	}
}
