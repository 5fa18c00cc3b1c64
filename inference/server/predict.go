package main

import (
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"sync"
)

var requests = sync.Pool{New: func() any { return new(request) }}

// format is how a prediction is written, on both ways.
type format struct {
	contentType string
	parse       func(*request) *failure // from body
	encode      func(*request, *model)  // from result, to reply
}

var formatJSON = &format{"application/json", (*request).parse, (*request).encode}

// predict answers a prediction that comes through net/http.
func (s *server) predict(f *format, w http.ResponseWriter, r *http.Request) *failure {
	if !s.mayPredict(r.Header.Get("Authorization")) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.Header().Set("Connection", "close")
		return fail(http.StatusUnauthorized, "unauthorized", "Authorization: must be Bearer with the token of the endpoint's predict_token_file")
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return fail(http.StatusUnsupportedMediaType, "bad_request", "Content-Encoding: must be absent, is %s: send predictions uncompressed", shown(encoding))
	}
	q := requests.Get().(*request)
	defer requests.Put(q)
	q.from = 0
	var err *failure
	if q.body, err = readBody(w, r, q.body, s.config.maxBodyBytes); err != nil {
		return err
	}
	if err := s.answer(f, q); err != nil {
		return err
	}
	header := w.Header()
	header["Content-Type"] = []string{f.contentType}
	header["Content-Length"] = []string{strconv.Itoa(len(q.reply))}
	// A client that has gone away needs no answer.
	_, _ = w.Write(q.reply)
	return nil
}

// answer computes q.reply from q.body.
func (s *server) answer(f *format, q *request) *failure {
	if err := f.parse(q); err != nil {
		return err
	}
	m := s.models.acquire(q.model)
	if m == nil {
		if !s.ready.Load() {
			return notReady()
		}
		if _, set := s.models.allAliases()[""]; len(q.model) == 0 && !set {
			return badRequest("model: must be there, as no default model is set (POST /params), is missing: GET /models lists the names")
		}
		return s.models.absent(string(q.model))
	}
	defer m.release()
	if err := m.predict(q); err != nil {
		if err.status >= 500 {
			m.complain.Do(func() {
				s.log.Error("a model gives bad answers; said once, counted always", "model", m.name, "error", err)
			})
		}
		return err
	}
	s.metrics.rows.Observe(float64(q.rows))
	f.encode(q, m)
	return nil
}

// readBody reads a request's body into buffer and returns it, grown where needed.
func readBody(w http.ResponseWriter, r *http.Request, buffer []byte, limit int64) ([]byte, *failure) {
	if r.ContentLength > limit {
		w.Header().Set("Connection", "close")
		return buffer, tooLarge(limit)
	}
	body := http.MaxBytesReader(w, r.Body, limit)
	buffer = buffer[:0]
	for {
		if len(buffer) == cap(buffer) {
			grown := make([]byte, len(buffer), 2*cap(buffer)+4096)
			copy(grown, buffer)
			buffer = grown
		}
		n, err := body.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		if err == io.EOF {
			return buffer, nil
		} else if err != nil {
			return buffer, bodyFailure(err, limit)
		}
	}
}

// bodyFailure is the answer where reading a body ended with err.
func bodyFailure(err error, limit int64) *failure {
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long), errors.Is(err, errTooLarge):
		return tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fail(http.StatusRequestTimeout, "timeout", "body: must arrive in time, did not")
	}
	return badRequest("body: can't be read: %v", err)
}

func tooLarge(limit int64) *failure {
	return fail(http.StatusRequestEntityTooLarge, "too_large", "body: must have at most %d bytes", limit)
}

// encode writes q.result to q.reply as JSON: an array for values, an array of arrays for rows.
func (q *request) encode(m *model) {
	b, outputs := q.reply[:0], m.outputs
	if q.nested {
		b = append(b, '[')
	}
	for row := 0; row < q.rows; row++ {
		if row > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		for i, value := range q.result[row*outputs : (row+1)*outputs] {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendFloat(b, value)
		}
		b = append(b, ']')
	}
	if q.nested {
		b = append(b, ']')
	}
	q.reply = b
}

// appendFloat writes the shortest text that reads back as the same float32, in the notation of encoding/json (which is stock TFaaS's).
func appendFloat(b []byte, value float32) []byte {
	format := byte('f')
	if size := math.Abs(float64(value)); size != 0 && (size < 1e-6 || size >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(b, float64(value), format, -1, 32)
}
