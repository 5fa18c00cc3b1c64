// Command smartcache-endpoint serves the models that smartcache trains, over the HTTP API of TFaaS.
//
// It exists because a cache asks it on every open: unlike the stock server it never replaces a model behind a name, refuses input that
// would give a plausible but meaningless answer, and stops without dropping requests. README.md beside this file is its manual.
//
// The path of a prediction: fast.go and head.go (plain requests) or server.go (all others, through net/http) → predict.go (body, answer) →
// request.go (JSON) → registry.go (which model) → model.go (order of values, finite answers) → batch.go (runs shared) → tf (TensorFlow). The
// path of a model: admin.go and credentials.go (token, upload, delete) → archive.go (unpacking) → registry.go (installing) → bundle.go and model.go (checks, golden rows), or plain.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"smartcache/inference/server/tf"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program; it returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	c, err := parseConfig(args, stdout)
	if errors.Is(err, errHelp) {
		return 0
	} else if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	if err := withEnvironment(); err != nil {
		fmt.Fprintln(stderr, "starting again with TensorFlow's settings:", err)
		return 1
	}
	log := slog.New(slog.NewJSONHandler(stderr, nil))

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	stopped := 0
	go func() {
		if <-signals == syscall.SIGINT {
			stopped = 130
		}
		stop()
	}()

	s, err := newServer(c, log)
	if err != nil {
		log.Error("can't start", "error", err)
		return 1
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(c.bind, strconv.Itoa(c.port)))
	if err != nil {
		log.Error("can't start", "error", fmt.Errorf("bind, port: must be free and this machine's, are %s and %d: %w", c.bind, c.port, err))
		return 1
	}
	log.Info("starting", "tensorflow", tf.Version(), "model_dir", c.modelDir, "uploads", c.files.adminToken != "", "tls", c.files.certificate != "",
		"client_certificates", c.files.authorities != "", "predict_token", c.files.predictToken != "")
	if err := s.run(ctx, listener, func() { fmt.Fprintf(stdout, "ready: %s\n", address(listener, c.credentials.tls != nil)) }); err != nil {
		log.Error("stopped", "error", err)
		return 1
	}
	s.models.close()
	log.Info("stopped")
	return stopped
}

// withEnvironment starts this program anew, in the same process, where a setting that TensorFlow reads as it is loaded is missing.
func withEnvironment() error {
	missing := false
	for name, value := range tf.Environment {
		if _, set := os.LookupEnv(name); !set {
			missing = true
			if err := os.Setenv(name, value); err != nil {
				return err
			}
		}
	}
	if !missing {
		return nil
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(program, os.Args, os.Environ())
}
