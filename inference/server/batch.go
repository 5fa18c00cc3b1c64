package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A run of a small network costs TensorFlow some microseconds before the first row and a fraction of one for each. So predictions that are
// there at the same time share a run. None waits for others to come: who opens a batch lets the goroutines that can run already run first, which
// costs nothing where there is none, and then runs the batch with those of them that have joined it. On a machine with processors to spare
// nobody joins, and each prediction is a run of its own; the more there is to do, the larger the batches.

// batching is how rows of concurrent requests are put together.
type batching struct {
	rows int           // of a batch at most; 1: none is made
	wait time.Duration // how long who joins a batch waits for its opener, from when it was opened; then it is run without
}

// batcher runs the predictions of one model. Safe for use from several goroutines.
type batcher struct {
	batching
	width, outputs int
	predict        func(values, result []float32) error
	observe        func(rows int) // is told of each run

	mu       sync.Mutex
	open     *batch
	last     time.Time // of the last prediction
	lastFrom uint64
}

// batch is the input of several predictions, one after the other, and then their output.
type batch struct {
	began  time.Time
	values []float32
	rows   int
	taken  bool          // somebody runs it, or has
	done   chan struct{} // closed when the output is there; nil as long as nobody has joined
	result []float32
	failed bool
	unread atomic.Int32 // members that have not read the output yet
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// run is one prediction: rows of values in, rows of outputs to result. Predictions that come from the same place (not 0), one after the other,
// are not expected to be joined. What a batch fails at is run again by itself, so that no prediction fails because of another one.
func (b *batcher) run(from uint64, values, result []float32) error {
	rows := len(values) / b.width
	if 2*rows > b.rows {
		return b.alone(values, result)
	}
	now := time.Now()
	b.mu.Lock()
	crowded := now.Sub(b.last) < b.wait && (from == 0 || from != b.lastFrom)
	b.last, b.lastFrom = now, from
	p := b.open
	if p == nil && !crowded {
		b.mu.Unlock()
		return b.alone(values, result)
	}
	place, mine := 0, false
	if p != nil && p.rows+rows <= b.rows {
		place = p.rows
		p.add(values, rows)
		if p.done == nil {
			p.done = make(chan struct{})
		}
		if mine = p.rows == b.rows || now.Sub(p.began) >= b.wait; mine {
			p.taken, b.open = true, nil
		}
		b.mu.Unlock()
	} else {
		p = batches.Get().(*batch)
		*p = batch{began: now, values: p.values[:0], result: p.result}
		p.add(values, rows)
		b.open = p // one that had no room is run by who opened it
		b.mu.Unlock()
		runtime.Gosched()
		b.mu.Lock()
		if b.open == p {
			b.open = nil
		}
		mine, p.taken = !p.taken, true
		b.mu.Unlock()
		if p.done == nil {
			batches.Put(p)
			return b.alone(values, result)
		}
	}
	if mine {
		b.runBatch(p)
	} else {
		b.waitFor(p, b.wait-now.Sub(p.began))
	}
	failed := p.failed
	copy(result, p.result[place*b.outputs:])
	if p.unread.Add(-1) == 0 {
		batches.Put(p)
	}
	if failed {
		return b.alone(values, result)
	}
	return nil
}

// add is called with the batcher's lock.
func (p *batch) add(values []float32, rows int) {
	p.values = append(p.values, values...)
	p.rows += rows
	p.unread.Add(1)
}

// waitFor waits for whoever is to run the batch, and runs it where nobody has begun to after so long.
func (b *batcher) waitFor(p *batch, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-p.done:
		return
	case <-timer.C:
	}
	b.mu.Lock()
	mine := !p.taken
	if mine {
		p.taken = true
		if b.open == p {
			b.open = nil
		}
	}
	b.mu.Unlock()
	if mine {
		b.runBatch(p)
	} else {
		<-p.done
	}
}

func (b *batcher) runBatch(p *batch) {
	p.failed = true // where it panics: the others go on alone
	defer close(p.done)
	if size := p.rows * b.outputs; cap(p.result) < size {
		p.result = make([]float32, size)
	} else {
		p.result = p.result[:size]
	}
	b.observe(p.rows)
	p.failed = b.predict(p.values, p.result) != nil
}

func (b *batcher) alone(values, result []float32) error {
	b.observe(len(values) / b.width)
	return b.predict(values, result)
}
