package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// resident is how much memory a process has, in bytes.
func resident(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("no VmRSS in %s", text)
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// TestUnloadingFreesMemory loads twelve models and unloads them, round after round: after all rounds the server has less than with the twelve of
// the second round. Were a sixth of a model left each time, it would have more.
func TestUnloadingFreesMemory(t *testing.T) {
	c, address := process(t, modelDir(t, "reuse_v1"), "60s", "5s")
	ask := func(method, path string, body []byte) {
		t.Helper()
		r, err := http.NewRequest(method, "http://"+address+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != 200 {
			t.Fatalf("%s %s: %d", method, path, response.StatusCode)
		}
	}
	const models, rounds = 12, 8
	var names []string
	var uploads [][]byte
	for i := range models {
		names = append(names, fmt.Sprintf("other_v%d", i))
		uploads = append(uploads, archive(t, packed(t, "reuse_v2", names[i], nil)...).Bytes())
	}
	var loaded, unloaded []int
	for range rounds {
		for _, upload := range uploads {
			ask("POST", "/upload", upload)
		}
		loaded = append(loaded, resident(t, c.Process.Pid))
		for _, name := range names {
			ask("DELETE", "/delete/"+name, nil)
		}
		unloaded = append(unloaded, resident(t, c.Process.Pid))
	}
	mib := func(all []int) (shown []string) {
		for _, n := range all {
			shown = append(shown, fmt.Sprintf("%.1f", float64(n)/(1<<20)))
		}
		return shown
	}
	t.Logf("MiB with the models, round by round: %v; without them: %v", mib(loaded), mib(unloaded))
	if unloaded[rounds-1] >= loaded[1] {
		t.Error("memory is not freed")
	}
}
