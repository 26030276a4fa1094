// Command kubernetes reads manifests as the API types of one Kubernetes minor version and names every field that this
// version does not know. The version is that of the module file which it is built with: go run -modfile=1.34.mod . FILE…
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(files []string, out io.Writer) error {
	if len(files) == 0 {
		return errors.New("usage: kubernetes FILE…")
	}
	decoder, err := newDecoder()
	if err != nil {
		return err
	}
	objects := 0
	var problems []error
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading manifests: %w", err)
		}
		n, err := check(decoder, content)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", path, err))
		}
		objects += n
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	if objects == 0 {
		return errors.New("the files hold no objects")
	}
	_, err = fmt.Fprintf(out, "%d objects are known with all their fields\n", objects)
	return err
}

func newDecoder() (runtime.Decoder, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistrationv1.AddToScheme, appsv1.AddToScheme, corev1.AddToScheme,
		networkingv1.AddToScheme, policyv1.AddToScheme, rbacv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering types: %w", err)
		}
	}
	return json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true}), nil
}

// check returns how many objects the documents hold. Those of the Prometheus operator have no types in Kubernetes.
func check(decoder runtime.Decoder, manifests []byte) (int, error) {
	objects := 0
	var problems []error
	for documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, errors.Join(problems...)
		}
		if err != nil {
			return objects, fmt.Errorf("reading manifests: %w", err)
		}
		if !strings.Contains("\n"+string(document), "\nkind:") {
			continue // comments alone
		}
		objects++
		_, kind, err := decoder.Decode(document, nil, nil)
		if err == nil || kind != nil && kind.Group == "monitoring.coreos.com" {
			continue
		}
		problems = append(problems, fmt.Errorf("object %d: %w", objects, err))
	}
}
