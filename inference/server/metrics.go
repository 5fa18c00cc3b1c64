package main

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are what /metrics shows. Labels are of few, fixed values, and the names of models: never what a client sent.
type metrics struct {
	registry    *prometheus.Registry
	requests    *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	failures    *prometheus.CounterVec
	rows        prometheus.Histogram
	runRows     prometheus.Histogram
	credentials prometheus.Gauge
}

// maxModelSeries bounds how many models have a series of their own; all are counted.
const maxModelSeries = 100

// loadedModels has a series for each model that is served, as long as it is.
type loadedModels struct {
	models func() []*bundle
	loaded *prometheus.Desc
}

func newLoadedModels(models func() []*bundle) *loadedModels {
	return &loadedModels{models, prometheus.NewDesc("smartcache_endpoint_model_loaded",
		"1 for each model that is served, by its name and version (NAME_vVERSION; of other names the version is empty): the newest 100.",
		[]string{"model", "version"}, nil)}
}

func (l *loadedModels) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- l.loaded }

func (l *loadedModels) Collect(metrics chan<- prometheus.Metric) {
	type version struct {
		model, text string
		number      uint64
	}
	var all []version
	for _, b := range l.models() {
		each := version{model: b.name}
		if before, after, found := cutLast(b.name, "_v"); found {
			if number, err := strconv.ParseUint(after, 10, 64); err == nil {
				each = version{before, after, number}
			}
		}
		all = append(all, each)
	}
	slices.SortStableFunc(all, func(a, b version) int { return cmp.Compare(b.number, a.number) })
	for _, each := range all[:min(len(all), maxModelSeries)] {
		metrics <- prometheus.MustNewConstMetric(l.loaded, prometheus.GaugeValue, 1, each.model, each.text)
	}
}

// cutLast is strings.Cut around the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// newMetrics shows what the functions say at the time that it is asked for: which models are served, and how many folders have none that can be.
func newMetrics(models func() []*bundle, leftOut func() int) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "smartcache_endpoint_requests_total", Help: "Requests answered, by handler and HTTP status.",
		}, []string{"handler", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "smartcache_endpoint_request_seconds", Help: "Time from a request's header to its answer, by handler.",
			Buckets: []float64{0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.1, 1, 10},
		}, []string{"handler"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "smartcache_endpoint_errors_total", Help: "Requests that failed, by the kind of failure.",
		}, []string{"kind"}),
		rows: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "smartcache_endpoint_request_rows", Help: "Rows of a predicted request; the sum is all rows predicted.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 8),
		}),
		runRows: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "smartcache_endpoint_batch_rows", Help: "Rows of a run of TensorFlow, of one or more requests; the count is all runs.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 12),
		}),
		credentials: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "smartcache_endpoint_credentials_refused", Help: "1 while the files of tokens and certificates hold something that can't be used.",
		}),
	}
	m.registry.MustRegister(m.requests, m.seconds, m.failures, m.rows, m.runRows, m.credentials,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "smartcache_endpoint_models_loaded", Help: "Models that are served.",
		}, func() float64 { return float64(len(models())) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "smartcache_endpoint_models_left_out", Help: "Folders that are there and whose model could not be loaded at start.",
		}, func() float64 { return float64(leftOut()) }),
		newLoadedModels(models),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) page() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// recorder counts the requests of one handler; the success of a request, the usual case, costs no look-up.
type recorder struct {
	*metrics
	handler string
	good    prometheus.Counter
	time    prometheus.Observer
}

func (m *metrics) recorder(handler string) *recorder {
	return &recorder{m, handler, m.requests.WithLabelValues(handler, "200"), m.seconds.WithLabelValues(handler)}
}

func (r *recorder) record(start time.Time, err *failure) {
	r.time.Observe(time.Since(start).Seconds())
	if err == nil {
		r.good.Inc()
		return
	}
	r.requests.WithLabelValues(r.handler, strconv.Itoa(err.status)).Inc()
	r.failures.WithLabelValues(err.kind).Inc()
}
