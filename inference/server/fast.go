package main

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A cache asks once per open, so its connections are idle in between, and everything that a request wakes up or touches is cold: net/http's
// background reader, which is another thread's work, and its header maps cost more than the prediction itself. So a connection begins in
// fastConn, which answers plain predictions in the goroutine that reads them. The first request that is anything else hands the connection, with
// all that was read, to net/http for good: every rule about HTTP other than "a small POST of known length" is net/http's.

// fastBytes is the longest request, header and body, that fastConn answers.
const fastBytes = 64 << 10

// drainLook is how often drain looks.
const drainLook = 2 * time.Millisecond

// fastListener hands out connections that answer predictions themselves. Safe for use from several goroutines.
type fastListener struct {
	net.Listener
	server *server

	closing sync.Once

	mu       sync.Mutex
	count    uint64                 // of connections so far
	conns    map[*fastConn]struct{} // that net/http has not taken over
	stopping bool
}

func newFastListener(listener net.Listener, s *server) *fastListener {
	return &fastListener{Listener: listener, server: s, conns: map[*fastConn]struct{}{}}
}

func (l *fastListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &fastConn{Conn: conn, listener: l}
	l.mu.Lock()
	l.count++
	c.number = l.count
	l.conns[c] = struct{}{}
	if l.stopping { // it came before the listener was closed
		c.stop()
	}
	l.mu.Unlock()
	return c, nil
}

func (l *fastListener) forget(c *fastConn) {
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
}

// Close is for stop and for net/http, whoever is first.
func (l *fastListener) Close() (err error) {
	l.closing.Do(func() { err = l.Listener.Close() })
	return err
}

// drain takes no more connections, stops those that there are, and waits for their requests, until ctx ends. For net/http they are new, and
// what is new for more than five seconds its Shutdown closes, in the middle of a request.
func (l *fastListener) drain(ctx context.Context) {
	_ = l.Close() // what is not closed now is by Shutdown
	l.stop()
	for ctx.Err() == nil {
		l.mu.Lock()
		left := len(l.conns)
		l.mu.Unlock()
		if left == 0 {
			return
		}
		time.Sleep(drainLook)
	}
}

// stop ends the connections that wait for a request; those that are in one end after it.
func (l *fastListener) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopping = true
	for c := range l.conns {
		c.stop()
	}
}

// cut ends the answers that a client does not read.
func (l *fastListener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.SetWriteDeadline(time.Unix(1, 0)) // one that is closed needs none
	}
}

// fastConn is a connection as net/http sees it: the first Read answers predictions, and returns with the first bytes that are none.
type fastConn struct {
	net.Conn
	number    uint64 // no other has it
	listener  *fastListener
	answering sync.Mutex // Close waits for an answer that is being written
	inRequest atomic.Bool
	stopping  atomic.Bool

	handedOver bool
	began      time.Time // of the request that is in unread
	buffer     []byte    // grows to fastBytes
	unread     []byte    // the part of buffer that was read and not answered
	reply      []byte
}

// stop ends it, after the request that it is in.
func (c *fastConn) stop() {
	c.stopping.Store(true)
	if !c.inRequest.Load() {
		_ = c.SetReadDeadline(time.Unix(1, 0)) // one that is closed needs none
	}
}

func (c *fastConn) Read(p []byte) (int, error) {
	if !c.handedOver {
		err := c.answerPredictions()
		c.listener.forget(c)
		c.handedOver = true
		if err != nil {
			return 0, err
		}
		// net/http's own limit counts from the beginning of the connection.
		if err := c.SetReadDeadline(c.began.Add(c.listener.server.config.requestTimeout)); err != nil {
			return 0, err
		}
	}
	if len(c.unread) == 0 {
		c.buffer, c.unread, c.reply = nil, nil, nil
		return c.Conn.Read(p)
	}
	n := copy(p, c.unread)
	c.unread = c.unread[n:]
	return n, nil
}

func (c *fastConn) Close() error {
	c.answering.Lock()
	defer c.answering.Unlock()
	c.listener.forget(c)
	return c.Conn.Close()
}

// CloseWrite lets net/http end a connection so that its last answer arrives although the client still sends.
func (c *fastConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// answerPredictions returns nil where net/http has to go on: with what is in unread, or with a body that does not come. An error means that the
// connection has ended between two requests.
func (c *fastConn) answerPredictions() error {
	c.buffer = make([]byte, 4096)
	s := c.listener.server
	wait := s.config.requestTimeout // for the first request, as net/http has it
	if secure, ok := c.Conn.(*tls.Conn); ok {
		if err := secure.SetDeadline(time.Now().Add(wait)); err != nil {
			return err
		}
		if c.stopping.Load() { // before its deadline was overwritten
			return io.EOF
		}
		if err := secure.Handshake(); err != nil {
			s.metrics.failures.WithLabelValues("tls").Inc()
			return err
		}
	}
	for {
		if len(c.unread) == 0 {
			c.inRequest.Store(false)
			if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
				return err
			}
			if c.stopping.Load() {
				return io.EOF
			}
			n, err := c.Conn.Read(c.buffer)
			if c.unread = c.buffer[:n]; n == 0 {
				return err
			}
		}
		c.inRequest.Store(true)
		c.began = time.Now()
		h, verdict := s.parseHead(c.unread)
		for limited := false; verdict == incomplete || verdict == plain && len(c.unread) < h.size+h.length; limited = true {
			if len(c.unread) == fastBytes || h.length > fastBytes-h.size {
				return nil
			}
			if !limited {
				if err := c.SetReadDeadline(c.began.Add(s.config.requestTimeout)); err != nil {
					return err
				}
			}
			if !c.readMore() {
				return nil
			}
			if verdict == incomplete {
				h, verdict = s.parseHead(c.unread)
			}
		}
		if verdict == other || int64(h.length) > s.config.maxBodyBytes || !s.mayPredict(string(h.token)) {
			return nil
		}
		if err := c.answer(&h, c.unread[h.size:h.size+h.length]); err != nil {
			return err
		}
		c.unread = c.unread[h.size+h.length:]
		wait = idleTimeout
	}
}

// readMore adds to unread; it says whether there was more.
func (c *fastConn) readMore() bool {
	have := len(c.unread)
	if cap(c.unread) == have {
		if have == len(c.buffer) {
			c.buffer = make([]byte, min(2*have, fastBytes))
		}
		copy(c.buffer, c.unread)
		c.unread = c.buffer[:have]
	}
	n, _ := c.Conn.Read(c.unread[have:cap(c.unread)])
	c.unread = c.unread[:have+n]
	return n > 0
}

// answer writes the answer to one prediction.
func (c *fastConn) answer(h *head, body []byte) error {
	c.answering.Lock()
	defer c.answering.Unlock()
	s := c.listener.server
	q := requests.Get().(*request)
	defer requests.Put(q)
	q.body, q.from = append(q.body[:0], body...), c.number
	failed := s.fastPrediction(h, q)
	h.route.recorder.record(c.began, failed)

	b := append(c.reply[:0], "HTTP/1.1 "...)
	status, contentType, content := http.StatusOK, h.route.format.contentType, q.reply
	if failed != nil {
		status, contentType, content = failed.status, "application/json", failed.body()
	}
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(append(append(b, ' '), http.StatusText(status)...), "\r\nContent-Type: "...)
	b = append(append(b, contentType...), "\r\nContent-Length: "...)
	b = append(strconv.AppendInt(b, int64(len(content)), 10), "\r\nDate: "...)
	b = c.began.UTC().AppendFormat(b, http.TimeFormat)
	if c.stopping.Load() {
		b = append(b, "\r\nConnection: close"...)
	}
	c.reply = append(append(b, "\r\n\r\n"...), content...)
	if err := c.SetWriteDeadline(c.began.Add(2 * s.config.requestTimeout)); err != nil {
		return err
	}
	_, err := c.Write(c.reply)
	return err
}

// fastPrediction is a prediction; a panic of it becomes an answer.
func (s *server) fastPrediction(h *head, q *request) (failed *failure) {
	defer func() {
		if cause := recover(); cause != nil {
			failed = s.panicked(h.route.path, cause)
		}
	}()
	return s.answer(h.route.format, q)
}
