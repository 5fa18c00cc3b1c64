package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// config is how this endpoint was started. Every value comes from a flag, and no flag has a default here: the defaults stand in
// smartcache.toml, from which `smartcache endpoint` passes them all.
type config struct {
	bind           string
	port           int
	modelDir       string
	files          credentialFiles
	credentials    *credentials // as the files were at start
	maxBodyBytes   int64
	maxUploadBytes int64
	batching       batching
	requestTimeout time.Duration
	shutdownGrace  time.Duration
}

// field is one flag: what it means, one value that works, and the rule that its text must keep.
type field struct {
	name, meaning, example string
	set                    func(c *config, text string) (rule string)
}

var fields = []field{
	{"bind", "address that the server listens on; 0.0.0.0 is every IPv4 interface", "127.0.0.1", func(c *config, text string) string {
		c.bind = text
		return unless(text != "", "must name an address: there is no bind to every interface by omission")
	}},
	{"port", "TCP port; 0 takes a free one, which the ready line names", "8083", func(c *config, text string) string {
		n, err := strconv.ParseUint(text, 10, 16)
		c.port = int(n)
		return unless(err == nil, "must be a whole number from 0 to 65535")
	}},
	{"model-dir", "folder with one folder per model; those there at start are loaded, uploads are added", "/var/lib/smartcache/models", func(c *config, text string) string {
		c.modelDir = filepath.Clean(text)
		if !filepath.IsAbs(text) {
			return "must be an absolute path"
		}
		info, err := os.Stat(text)
		return unless(err == nil && info.IsDir(), "must be an existing folder (mkdir -p makes it)")
	}},
	{"admin-token-file", "file with the bearer token that /upload, /delete and POST /params ask for; empty: those calls are refused", "/etc/smartcache/endpoint.token", fileField(func(c *config) *string { return &c.files.adminToken })},
	{"predict-token-file", "file with the bearer token that predictions ask for, beside the administrator's; empty: they ask for none", "/etc/smartcache/predict.token", fileField(func(c *config) *string { return &c.files.predictToken })},
	{"tls-cert-file", "certificate of this server and of those who signed it, PEM; empty: no TLS", "/etc/grid-security/hostcert.pem", fileField(func(c *config) *string { return &c.files.certificate })},
	{"tls-key-file", "its key, PEM", "/etc/grid-security/hostkey.pem", fileField(func(c *config) *string { return &c.files.key })},
	{"client-ca-file", "PEM of the authorities one of which must have signed the certificate of a client; empty: clients need none", "/etc/smartcache/clients.pem", fileField(func(c *config) *string { return &c.files.authorities })},
	{"max-body-bytes", "longest body of a prediction", "1048576", bytesField(func(c *config) *int64 { return &c.maxBodyBytes })},
	{"max-upload-bytes", "longest body of an upload, and largest tar that it may unpack to", "268435456", bytesField(func(c *config) *int64 { return &c.maxUploadBytes })},
	{"batch-rows", "most rows of concurrent requests that are put together to one run of a model; 1: none are", "64", func(c *config, text string) string {
		n, err := strconv.ParseUint(text, 10, 16)
		c.batching.rows = int(n)
		return unless(err == nil && n >= 1 && n <= 4096, "must be a whole number from 1 to 4096")
	}},
	{"batch-wait", "time for which a run may stay open for further rows", "0.0002s", func(c *config, text string) string {
		d, err := time.ParseDuration(text)
		c.batching.wait = d
		return unless(err == nil && d >= 0 && d <= 10*time.Millisecond, "must be a time with its unit from 0s to 10ms")
	}},
	{"request-timeout", "time within which a request must have arrived, and an upload must have made progress", "5s", timeField(func(c *config) *time.Duration { return &c.requestTimeout })},
	{"shutdown-grace", "time that requests in flight get to finish after SIGTERM or SIGINT", "10s", timeField(func(c *config) *time.Duration { return &c.shutdownGrace })},
}

// errHelp is returned by parseConfig where only the help was asked for; it has been written then.
var errHelp = errors.New("help")

// parseConfig reads the flags. An error names every field that is wrong, its rule, its value and a fix, one a line.
func parseConfig(args []string, help io.Writer) (config, error) {
	var c config
	flags := flag.NewFlagSet("smartcache-endpoint", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	texts := map[string]*string{}
	for _, f := range fields {
		texts[f.name] = flags.String(f.name, "", f.meaning)
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		writeHelp(help)
		return c, errHelp
	} else if err != nil {
		return c, fmt.Errorf("%w: the flags are those of -help", err)
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("argument %q: there are only flags, each as -name value: -help lists them", flags.Arg(0))
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })

	var problems []error
	for _, f := range fields {
		if !given[f.name] {
			problems = append(problems, fmt.Errorf("%s: must be given, is missing: pass for example -%s %s", f.name, f.name, f.example))
		} else if rule := f.set(&c, *texts[f.name]); rule != "" {
			problems = append(problems, fmt.Errorf("%s: %s, is %q: pass for example -%s %s", f.name, rule, *texts[f.name], f.name, f.example))
		}
	}
	if len(problems) == 0 {
		var err error
		c.credentials, _, err = c.files.load()
		problems = append(problems, err)
	}
	return c, errors.Join(problems...)
}

func writeHelp(out io.Writer) {
	fmt.Fprint(out, `smartcache-endpoint serves SavedModels over the HTTP API of TFaaS.

All flags are required. 'smartcache endpoint' starts this program with the values of smartcache.toml, section [endpoint].

`)
	for _, f := range fields {
		fmt.Fprintf(out, "  -%s\n      %s; for example %s\n", f.name, f.meaning, f.example)
	}
	fmt.Fprint(out, `
When it listens and the models are loaded it prints one line on standard output: ready: http://ADDRESS:PORT
Logs are JSON lines on standard error. Exit status: 0 stopped by SIGTERM, 1 failed, 2 wrong flags, 130 stopped by SIGINT.
`)
}

func fileField(target func(*config) *string) func(*config, string) string {
	return func(c *config, text string) string {
		*target(c) = text
		return ""
	}
}

func bytesField(target func(*config) *int64) func(*config, string) string {
	return func(c *config, text string) string {
		n, err := strconv.ParseInt(text, 10, 64)
		*target(c) = n
		return unless(err == nil && n >= 1024 && n <= 1<<40, "must be a whole number of bytes from 1024 to 2^40")
	}
}

func timeField(target func(*config) *time.Duration) func(*config, string) string {
	return func(c *config, text string) string {
		d, err := time.ParseDuration(text)
		*target(c) = d
		return unless(err == nil && d >= time.Millisecond && d <= 24*time.Hour, "must be a time with its unit from 1ms to 24h")
	}
}

func unless(ok bool, rule string) string {
	if ok {
		return ""
	}
	return rule
}
