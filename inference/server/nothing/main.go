// Command nothing is the HTTP server that the endpoint is compared with: its handler reads the body and answers a constant, so what it costs is
// what net/http costs.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("ready: http://%s\n", listener.Addr())
	fmt.Fprintln(os.Stderr, http.Serve(listener, http.HandlerFunc(answer)))
	os.Exit(1)
}

func answer(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, "[0.2010609,0.5907504,0.2081887,0.1,0.1,0.1,0.1]")
}
