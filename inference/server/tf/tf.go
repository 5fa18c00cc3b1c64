// Package tf loads SavedModels with TensorFlow's C library and runs them.
//
// It covers what an endpoint of dense models needs and no more: one float32 input [None, F], one float32 output [None, B]. A prediction is
// one call into C (with a general binding it is about twenty), and Close frees everything before it returns, where a general binding leaves
// tensors and graphs to finalizers although their memory is C's, which Go's collector neither sees nor counts.
//
// Sessions run in the thread of their caller, without a pool of their own: a model of this size is computed faster than a thread is woken
// up, and the parallelism comes from the requests. The executor is TensorFlow's single-threaded one, a list of operations in a fixed order
// instead of a queue: less code to find cold after a pause. It takes no control flow (a layer that branches or loops as it predicts); loading
// such a model works, running it is an error. TensorFlow reads two settings when its library is loaded, so they must be in the environment
// before the program starts: TF_ENABLE_ONEDNN_OPTS=0 (oneDNN's set-up costs more than a small product saves) and TF_CPP_MIN_LOG_LEVEL=2 (only
// warnings and errors). See Environment.
package tf

// #cgo LDFLAGS: -ltensorflow -ltensorflow_framework
// #include <malloc.h>
// #include <stdlib.h>
// #include "run.h"
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

// sessionConfig is a serialized ConfigProto, field by field.
var sessionConfig = slices.Concat(
	[]byte{0x10, 1}, // intra_op_parallelism_threads: 1
	[]byte{0x28, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, // inter_op_parallelism_threads: -1, "all in the caller's thread"
	[]byte{0x52, 4, 0x1a, 2, 0x20, 1},                                     // graph_options.optimizer_options.do_function_inlining: true
	[]byte{0x82, 1, 26, 0x1a, 24}, []byte("SINGLE_THREADED_EXECUTOR"),     // experimental.executor_type
)

// Model is a loaded SavedModel. Run may be called from several goroutines at once; Close must not be called while a Run is under way,
// and Run not after Close.
type Model struct {
	session *C.TF_Session
	graph   *C.TF_Graph
	in, out C.TF_Output
	width   int
}

// Environment is what the library must find in the environment of the program; a variable that is set already is the operator's choice.
var Environment = map[string]string{"TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPP_MIN_LOG_LEVEL": "2"}

// Version is that of the TensorFlow library.
func Version() string { return C.GoString(C.TF_Version()) }

// Load reads the SavedModel in dir; input and output are the names of graph nodes, "operation" or "operation:index". An error says what
// is wrong with the model; nothing stays loaded then.
func Load(dir, input, output string) (_ *Model, err error) {
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	options := C.TF_NewSessionOptions()
	defer C.TF_DeleteSessionOptions(options)
	C.TF_SetConfig(options, unsafe.Pointer(&sessionConfig[0]), C.size_t(len(sessionConfig)), status)
	if err := statusError(status); err != nil {
		return nil, fmt.Errorf("session options: %w", err)
	}

	folder, tag := C.CString(dir), C.CString("serve")
	defer C.free(unsafe.Pointer(folder))
	defer C.free(unsafe.Pointer(tag))
	m := &Model{graph: C.TF_NewGraph()}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	m.session = C.TF_LoadSessionFromSavedModel(options, nil, folder, &tag, 1, m.graph, nil, status)
	if err := statusError(status); err != nil {
		return nil, fmt.Errorf("SavedModel: %w", err)
	}
	if m.in, err = m.node(input); err != nil {
		return nil, fmt.Errorf("input_node: %w", err)
	}
	if m.out, err = m.node(output); err != nil {
		return nil, fmt.Errorf("output_node: %w", err)
	}
	if m.width, err = m.inputWidth(status); err != nil {
		return nil, fmt.Errorf("input_node %s: %w", input, err)
	}
	if t := C.TF_OperationOutputType(m.out); t != C.TF_FLOAT {
		return nil, fmt.Errorf("output_node %s: must be float32, is TensorFlow's type %d", output, t)
	}
	return m, nil
}

// Width is the number of values of one input row.
func (m *Model) Width() int { return m.width }

// OutWidth is the number of values of one output row: what the graph says, else what comes out for a row of zeros.
func (m *Model) OutWidth() (int, error) {
	status := C.TF_NewStatus()
	defer C.TF_DeleteStatus(status)
	if C.TF_GraphGetTensorNumDims(m.graph, m.out, status) == 2 && statusError(status) == nil {
		var dims [2]C.int64_t
		C.TF_GraphGetTensorShape(m.graph, m.out, &dims[0], 2, status)
		if statusError(status) == nil && dims[1] > 0 {
			return int(dims[1]), nil
		}
	}
	var width C.int64_t
	if problem := C.smartcache_out_width(m.session, m.in, m.out, C.int64_t(m.width), &width); problem != nil {
		defer C.free(unsafe.Pointer(problem))
		return 0, fmt.Errorf("output_node: the graph does not say how wide it is, and a row of zeros fails: %s", C.GoString(problem))
	}
	if width < 1 {
		return 0, errors.New("output_node: must have at least one value a row, has none")
	}
	return int(width), nil
}

// Run predicts: values holds one row after the other, result has room for as many rows of outWidth values. An error leaves result
// undefined and the model as it was.
func (m *Model) Run(values []float32, result []float32, outWidth int) error {
	rows := len(values) / m.width
	if rows == 0 || len(values) != rows*m.width || len(result) != rows*outWidth || outWidth == 0 {
		return fmt.Errorf("%d input values and room for %d output values do not make rows of %d and %d", len(values), len(result), m.width, outWidth)
	}
	problem := C.smartcache_run(m.session, m.in, m.out, (*C.float)(unsafe.Pointer(&values[0])), C.int64_t(rows), C.int64_t(m.width),
		(*C.float)(unsafe.Pointer(&result[0])), C.int64_t(outWidth))
	if problem != nil {
		defer C.free(unsafe.Pointer(problem))
		return errors.New(C.GoString(problem))
	}
	return nil
}

// Close frees the model, and gives its memory back to the system: glibc would keep it, in pieces between which the next model's do not fit.
func (m *Model) Close() {
	defer C.malloc_trim(0)
	if m.session != nil {
		status := C.TF_NewStatus()
		defer C.TF_DeleteStatus(status)
		// What closing reports is of no use: the session is deleted whatever it says.
		C.TF_CloseSession(m.session, status)
		C.TF_DeleteSession(m.session, status)
		m.session = nil
	}
	if m.graph != nil {
		C.TF_DeleteGraph(m.graph)
		m.graph = nil
	}
}

// node finds a node of the graph by name.
func (m *Model) node(name string) (C.TF_Output, error) {
	operation, index := name, 0
	if before, after, found := strings.Cut(name, ":"); found {
		n, err := strconv.ParseUint(after, 10, 16)
		if err != nil {
			return C.TF_Output{}, fmt.Errorf("%q: what follows the colon must be the number of an output", name)
		}
		operation, index = before, int(n)
	}
	cName := C.CString(operation)
	defer C.free(unsafe.Pointer(cName))
	found := C.TF_GraphOperationByName(m.graph, cName)
	if found == nil {
		return C.TF_Output{}, fmt.Errorf("the graph has no node %q", operation)
	}
	if outputs := int(C.TF_OperationNumOutputs(found)); index >= outputs {
		return C.TF_Output{}, fmt.Errorf("node %q has %d outputs, no number %d", operation, outputs, index)
	}
	return C.TF_Output{oper: found, index: C.int(index)}, nil
}

// inputWidth is F of an input [None, F].
func (m *Model) inputWidth(status *C.TF_Status) (int, error) {
	if t := C.TF_OperationOutputType(m.in); t != C.TF_FLOAT {
		return 0, fmt.Errorf("must be float32, is TensorFlow's type %d", t)
	}
	count := int(C.TF_GraphGetTensorNumDims(m.graph, m.in, status))
	if err := statusError(status); err != nil {
		return 0, err
	}
	if count != 2 {
		return 0, fmt.Errorf("must have the shape [None, F], has %d dimensions", count)
	}
	var dims [2]C.int64_t
	C.TF_GraphGetTensorShape(m.graph, m.in, &dims[0], 2, status)
	if err := statusError(status); err != nil {
		return 0, err
	}
	if dims[0] != -1 || dims[1] < 1 {
		return 0, fmt.Errorf("must have the shape [None, F], has [%d, %d]", dims[0], dims[1])
	}
	return int(dims[1]), nil
}

func statusError(status *C.TF_Status) error {
	if C.TF_GetCode(status) == C.TF_OK {
		return nil
	}
	return errors.New(C.GoString(C.TF_Message(status)))
}
