// Package defaults holds default annotations for Services, by load balancer class.
package defaults

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	yamlnode "go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Set maps each class to its annotations; "" stands for Services without a class.
type Set map[string]map[string]string

// Classes returns the names of the classes, sorted.
func (s Set) Classes() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s)), func(class string) bool { return class == "" })
}

// Selected is the prefix of metadata.selfLink, before the class, for Services in memory that are served for their class: the class itself
// is removed for the framework. No API server serves or stores the field, and nobody else uses it.
const Selected = "anyccm.io/selected="

// ClassOf returns the class of a Service, also of one with Selected, and "" without one.
func ClassOf(service *v1.Service) string {
	if class, ok := strings.CutPrefix(service.GetSelfLink(), Selected); ok {
		return class
	}
	if service.Spec.LoadBalancerClass == nil {
		return ""
	}
	return *service.Spec.LoadBalancerClass
}

// Parse parses a file. All faults are returned together, each with its line. legal returns the faults of a class's annotations, as problems
// whose places name them.
func Parse(data []byte, legal func(annotations map[string]string) error) (Set, error) {
	decoder := yamlnode.NewDecoder(bytes.NewReader(data))
	var document yamlnode.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return Set{}, nil
	} else if err != nil {
		return nil, fmt.Errorf("this is not YAML: %w", err)
	}
	if err := decoder.Decode(&yamlnode.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("this holds more than one document; write one list")
	}
	p := parser{set: Set{}, lines: map[string]int{}, legal: legal}
	p.list(document.Content[0])
	if len(p.problems) > 0 {
		return nil, errors.Join(p.problems...)
	}
	return p.set, nil
}

type parser struct {
	set      Set
	lines    map[string]int
	legal    func(annotations map[string]string) error
	problems []error
}

func (p *parser) fault(node *yamlnode.Node, format string, args ...any) {
	p.problems = append(p.problems, fmt.Errorf("line %d: "+format, append([]any{node.Line}, args...)...))
}

func (p *parser) list(node *yamlnode.Node) {
	if node.Kind != yamlnode.SequenceNode {
		p.fault(node, "this is not a list; write one item for each class, with loadBalancerClass and annotations")
		return
	}
	for _, item := range node.Content {
		p.item(item)
	}
}

func (p *parser) item(node *yamlnode.Node) {
	if node.Kind != yamlnode.MappingNode {
		p.fault(node, "this is not an item with loadBalancerClass and annotations")
		return
	}
	var class *yamlnode.Node
	annotations := map[string]string{}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if seen[key.Value] {
			p.fault(key, "%s is there twice", key.Value)
		}
		seen[key.Value] = true
		switch key.Value {
		case "loadBalancerClass":
			class = value
		case "annotations":
			annotations = p.annotations(value)
		default:
			p.fault(key, "%q is unknown; use loadBalancerClass and annotations", key.Value)
		}
	}
	if class == nil || class.Kind != yamlnode.ScalarNode || class.Tag == "!!null" {
		p.fault(node, `loadBalancerClass is missing; write "" for Services without a class`)
		return
	}
	if class.Value != "" && len(validation.IsQualifiedName(class.Value)) > 0 {
		p.fault(class, "loadBalancerClass %q is not a label-style name such as example.com/internal", class.Value)
		return
	}
	if line, twice := p.lines[class.Value]; twice {
		p.fault(class, "loadBalancerClass %q is in line %d already", class.Value, line)
		return
	}
	p.lines[class.Value], p.set[class.Value] = class.Line, annotations
}

func (p *parser) annotations(node *yamlnode.Node) map[string]string {
	found := map[string]string{}
	if node.Kind == yamlnode.ScalarNode && node.Tag == "!!null" {
		return found
	}
	if node.Kind != yamlnode.MappingNode {
		p.fault(node, "annotations are not keys with values")
		return found
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		_, twice := found[key.Value]
		switch {
		case value.Kind != yamlnode.ScalarNode || value.Tag != "!!str":
			p.fault(value, `the value of %s is not a text; write it in quotes`, key.Value)
		case twice:
			p.fault(key, "%s is there twice", key.Value)
		default:
			found[key.Value] = value.Value
		}
	}
	for _, problem := range schema.Problems(p.legal(found)) {
		p.fault(findKey(node, problem), "%w", problem)
	}
	return found
}

// findKey finds the key that a problem names, the longest if one is a prefix of another, else the first annotation.
func findKey(node *yamlnode.Node, problem error) *yamlnode.Node {
	best := &yamlnode.Node{Line: node.Line}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if key := node.Content[i]; len(key.Value) > len(best.Value) && strings.Contains(problem.Error(), key.Value) {
			best = key
		}
	}
	return best
}

// Source is a file of defaults as it was last read. The zero value, and nil, have none.
type Source struct {
	mu  sync.RWMutex
	set Set
}

// Of returns the annotations of a class; they must not be changed.
func (s *Source) Of(class string) map[string]string {
	if s == nil {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.set[class]
}

// Set returns the current set.
func (s *Source) Set() Set {
	if s == nil {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.set
}

// Use replaces the set.
func (s *Source) Use(set Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set = set
}
