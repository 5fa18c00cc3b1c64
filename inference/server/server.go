package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// idleTimeout is how long a connection may wait for its next request: longer than the pauses of a cache, so that a client's pool of
	// connections stays warm.
	idleTimeout    = 5 * time.Minute
	maxHeaderBytes = 16 << 10
)

// server answers HTTP. Its handlers return what went wrong, and one place writes that as JSON and counts it. Safe for use from several
// goroutines.
type server struct {
	config      config
	log         *slog.Logger
	models      *registry
	started     time.Time
	metrics     *metrics
	credentials atomic.Pointer[credentials] // never nil
	ready       atomic.Bool
	uploads     chan struct{} // a slot for each that is under way
	http        *http.Server

	predictions []*route // by POST: the same for fastConn and for net/http
	connections *fastListener
}

// route is a path that predictions are sent to.
type route struct {
	path     string
	line     string // the first line of a request to it
	format   *format
	recorder *recorder
}

func newServer(c config, log *slog.Logger) (*server, error) {
	models, err := newRegistry(c.modelDir, c.credentials.adminToken != "", log)
	if err != nil {
		return nil, err
	}
	s := &server{config: c, log: log, models: models, started: time.Now(), metrics: newMetrics(models.list, models.countLeftOut), uploads: make(chan struct{}, maxUploads)}
	s.credentials.Store(c.credentials)
	models.open = func(folder, name string) (*model, error) {
		return openModel(folder, name, c.batching, func(rows int) { s.metrics.runRows.Observe(float64(rows)) })
	}
	predictions := s.metrics.recorder("predict")
	for path, format := range map[string]*format{
		"/json": formatJSON, "/predict/json": formatJSON, "/proto": formatProto, "/predict/proto": formatProto,
	} {
		s.predictions = append(s.predictions, &route{path, "POST " + path + " HTTP/1.1", format, predictions})
	}
	s.http = &http.Server{
		Handler:     s.routes(),
		ReadTimeout: c.requestTimeout,
		// From the end of the header: time to read the body, then as much to write the answer, also that the body came too late.
		WriteTimeout:   2 * c.requestTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		// What net/http reports are clients' faults; they are no news to an operator.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(handler, method, pattern string, f func(http.ResponseWriter, *http.Request) *failure) {
		recorder := s.metrics.recorder(handler)
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			start := time.Now()
			err := s.guard(f, method, w, r)
			recorder.record(start, err)
			if err != nil {
				writeJSON(w, err.status, map[string]string{"error": err.message})
			}
		})
	}
	for _, route := range s.predictions {
		handle("predict", http.MethodPost, route.path, func(w http.ResponseWriter, r *http.Request) *failure { return s.predict(route.format, w, r) })
	}
	handle("upload", http.MethodPost, "/upload", s.upload)
	handle("delete", http.MethodDelete, "/delete/{name}", s.remove)
	handle("delete", http.MethodDelete, "/delete", s.removeForm)
	handle("models", http.MethodGet, "/models", s.listModels)
	handle("params", http.MethodGet, "/params/{name}", s.params)
	handle("params", "", "/params", s.defaultParams)
	handle("status", http.MethodGet, "/status", s.status)
	handle("healthz", http.MethodGet, "/healthz", s.healthz)
	handle("readyz", http.MethodGet, "/readyz", s.readyz)
	page := s.metrics.page()
	handle("metrics", http.MethodGet, "/metrics", func(w http.ResponseWriter, r *http.Request) *failure {
		page.ServeHTTP(w, r)
		return nil
	})
	handle("other", "", "/", func(_ http.ResponseWriter, r *http.Request) *failure {
		return fail(http.StatusNotFound, "not_found", "path: there is no %s here", shown(r.URL.Path))
	})
	return mux
}

// guard calls a handler where the method is its own; a panic of the handler becomes an answer.
func (s *server) guard(f func(http.ResponseWriter, *http.Request) *failure, method string, w http.ResponseWriter, r *http.Request) (err *failure) {
	defer func() {
		if cause := recover(); cause == http.ErrAbortHandler {
			panic(cause)
		} else if cause != nil {
			err = s.panicked(r.URL.Path, cause)
		}
	}()
	if method != "" && r.Method != method && (method != http.MethodGet || r.Method != http.MethodHead) {
		return wrongMethod(w, r, method)
	}
	return f(w, r)
}

func wrongMethod(w http.ResponseWriter, r *http.Request, allowed string) *failure {
	w.Header().Set("Allow", allowed)
	return fail(http.StatusMethodNotAllowed, "bad_request", "method: must be %s, is %s", allowed, shown(r.Method))
}

// panicked is the answer where a handler panicked; it is called in the deferred function that found out.
func (s *server) panicked(path string, cause any) *failure {
	s.log.Error("panic", "path", path, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
	return internal("request")
}

func (s *server) listModels(w http.ResponseWriter, _ *http.Request) *failure {
	all := []json.RawMessage{}
	for _, b := range s.models.list() {
		all = append(all, b.params)
	}
	writeJSON(w, http.StatusOK, all)
	return nil
}

func (s *server) params(w http.ResponseWriter, r *http.Request) *failure {
	name := r.PathValue("name")
	m := s.models.acquire([]byte(name))
	if m == nil {
		return unknownModel(name)
	}
	defer m.release()
	writeJSON(w, http.StatusOK, m.params)
	return nil
}

func (s *server) healthz(w http.ResponseWriter, _ *http.Request) *failure {
	writeJSON(w, http.StatusOK, map[string]string{"status": "alive"})
	return nil
}

func (s *server) readyz(w http.ResponseWriter, _ *http.Request) *failure {
	if !s.ready.Load() {
		return notReady()
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
	return nil
}

func notReady() *failure {
	return fail(http.StatusServiceUnavailable, "not_ready", "the endpoint is starting or stopping: try again when GET /readyz answers 200")
}

// run serves on listener until ctx ends, then lets requests in flight finish. ready is called once the models are loaded. An error means that
// it could not serve, or that requests were cut off because they took longer than the grace.
func (s *server) run(ctx context.Context, listener net.Listener, ready func()) error {
	served := make(chan error, 1)
	s.connections = newFastListener(s.secured(listener), s)
	go func() { served <- s.http.Serve(s.connections) }()
	go s.watchCredentials(ctx)
	loaded := make(chan error, 1)
	go func() { loaded <- s.models.load() }()

	select {
	case err := <-loaded:
		if err != nil {
			return err
		}
		s.ready.Store(true)
		ready()
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}

	s.ready.Store(false)
	s.log.Info("stopping: requests in flight finish", "grace_seconds", s.config.shutdownGrace.Seconds())
	grace, cancel := context.WithTimeout(context.Background(), s.config.shutdownGrace)
	defer cancel()
	s.http.RegisterOnShutdown(s.connections.stop)
	context.AfterFunc(grace, s.connections.cut)
	s.connections.drain(grace)
	if err := s.http.Shutdown(grace); err != nil {
		return errors.Join(fmt.Errorf("requests were cut off after shutdown_grace %v", s.config.shutdownGrace), s.http.Close())
	}
	return nil
}

// address is the URL of a listener.
func address(listener net.Listener, secure bool) string {
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	return scheme + strings.Replace(listener.Addr().String(), "[::]", "[::1]", 1)
}
