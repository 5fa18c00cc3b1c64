package main

import (
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"

	"smartcache/inference/server/tf"
)

// status answers GET /status, for people; /metrics is for machines.
func (s *server) status(w http.ResponseWriter, _ *http.Request) *failure {
	families, err := s.metrics.registry.Gather()
	if err != nil {
		s.log.Error("metrics can't be gathered", "error", err)
		return internal("status")
	}
	sums := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			switch family.GetType() {
			case dto.MetricType_COUNTER:
				sums[family.GetName()] += m.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				sums[family.GetName()] += m.GetGauge().GetValue()
			}
		}
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return internal("status")
	}
	models := []string{}
	for _, b := range s.models.list() {
		models = append(models, b.name)
	}
	load, _ := os.ReadFile("/proc/loadavg") // empty where there is none
	writeJSON(w, http.StatusOK, map[string]any{
		"ready": s.ready.Load(), "uptime_s": time.Since(s.started).Seconds(), "tensorflow": tf.Version(), "models": models, "aliases": s.models.allAliases(),
		"cpu_s":        time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds(),
		"memory_bytes": sums["process_resident_memory_bytes"],
		"load":         strings.Fields(string(load)),
		"requests":     sums["smartcache_endpoint_requests_total"],
		"errors":       sums["smartcache_endpoint_errors_total"],
	})
	return nil
}
