package expectations

import (
	"bytes"
	"crypto/md5" //nolint:gosec // some clouds' own controllers make names with it
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// Takeover describes how a cluster moves from a cloud's own controller to ours and back: testdata/takeover.yaml in the provider's folder.
// Each template is a text/template over a Scene.
type Takeover struct {
	// None says why nothing is taken over: the cloud has no controller of its own.
	None string `json:"none"`
	// HeldBy is the test in the provider's package that holds the takeover where it is not written down as data.
	HeldBy string `json:"heldBy"`
	// Headers are templates; they go with every request.
	Headers map[string]string `json:"headers"`
	// Base is the cluster of the kinds that name no other one. Clusters have others, with what they add to it.
	Base     LeftCluster            `json:"base"`
	Clusters map[string]LeftCluster `json:"clusters"`
	// Node is a template of the part of a Node that its cloud's controller writes; Item is the instance.
	Node string `json:"node"`
	// Templates may be used in all others by name; they are given the Scene.
	Templates map[string]string `json:"templates"`
	// Common are values for templates.
	Common map[string]any `json:"common"`
	// Requests make the objects of a Service, and Shared, after those of all Services, what they have in common.
	Requests []Request `json:"requests"`
	Shared   []Request `json:"shared"`
	// Annotations and Status are templates of what is recorded on a Service; the status is a list of ingresses.
	Annotations string   `json:"annotations"`
	Finalizers  []string `json:"finalizers"`
	Status      string   `json:"status"`
	// Records are annotations that our program adds at the takeover, as the documentation announces, with regular expressions.
	Records map[string]string `json:"records"`
	// Rest is a template of what is left of Shared when all Services are gone: in the form of the state.
	Rest    string              `json:"rest"`
	Kinds   map[string]LeftKind `json:"kinds"`
	WayBack WayBack             `json:"wayBack"`
}

// LeftCluster is how a cluster runs that is taken over.
type LeftCluster struct {
	// Cloud are arguments of the simulated cloud; CloudConfig is added to the configuration file.
	Cloud       []string          `json:"cloud"`
	CloudConfig string            `json:"cloudConfig"`
	Values      map[string]any    `json:"values"`
	Arguments   []string          `json:"arguments"`
	Environment map[string]string `json:"environment"`
	// Objects is a template of manifests that are in the cluster.
	Objects string `json:"objects"`
	// Prepare are requests before there is any Service.
	Prepare []Request `json:"prepare"`
	// Queues are those of the controllers whose work is waited for.
	Queues []string `json:"queues"`
}

// LeftKind is a kind of Service: what its user wrote, and what of it differs from other Services.
type LeftKind struct {
	// Cluster is the one that it is in; empty means the base.
	Cluster     string            `json:"cluster"`
	Annotations map[string]string `json:"annotations"`
	// Spec is merged over that of a Service with TCP port 80. One of another type than LoadBalancer makes nothing.
	Spec map[string]any `json:"spec"`
	// Over are templates, by names of requests, of what is merged over their bodies. Without are requests that are not made.
	Over    map[string]string `json:"over"`
	Without []string          `json:"without"`
	// With are values for templates.
	With map[string]any `json:"with"`
	// Finalizers, where there are any, are in the place of those of all kinds.
	Finalizers []string `json:"finalizers"`
	// Recorded, where it is there, is in the place of the annotations, and Status in that of the status.
	Recorded *string `json:"recorded"`
	Status   string  `json:"status"`
	// Records, where it is there, is in the place of those of all kinds.
	Records map[string]string `json:"records"`
	// Stays says why its objects outlive the Service, Event is the reason of the event that says so, and OneWay says why there is no
	// way back for it.
	Stays  string `json:"stays"`
	Event  string `json:"event"`
	OneWay string `json:"oneWay"`
}

// LoadBalancer reports whether it has one.
func (k LeftKind) LoadBalancer() bool {
	kind, other := k.Spec["type"]
	return !other || kind == string(v1.ServiceTypeLoadBalancer)
}

// WayBack is how the cloud's own controller finds what we made, and what it sends then whether it differs or not.
type WayBack struct {
	// None says why there is nothing that it sends without a difference, where that is so.
	None string `json:"none"`
	// Settled is a template of the state that is waited for, and Finds one, for each Service, of what is to be found by.
	Settled  string    `json:"settled"`
	Finds    string    `json:"finds"`
	Requests []Request `json:"requests"`
	Shared   []Request `json:"shared"`
	// Unordered are paths of lists in the state whose order says nothing, such as load_balancers[].droplet_ids.
	Unordered []string `json:"unordered"`
}

// Request is a request of the cloud's own controller, or one of the simulator's actions. All texts are templates.
type Request struct {
	// Name is that of its answer.
	Name string `json:"name"`
	// Action is the name of an action of the simulator; else Method and Path are those of a call.
	Action  string            `json:"action"`
	Method  string            `json:"method"`
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"`
	// Body is YAML that is sent as JSON, or, with Form, as a form. Like is the name of the request that has the same body.
	Body string `json:"body"`
	Like string `json:"like"`
	Form bool   `json:"form"`
	// When is "true" where it is made; empty means always. Each has it made for each item of a list in YAML, which is Item.
	When string `json:"when"`
	Each string `json:"each"`
	// Until is the final answer of a path, in place of the first one.
	Until *Until `json:"until"`
}

// Until is the final answer of a path; both are templates.
type Until struct {
	Path string `json:"path"`
	Has  string `json:"has"`
}

// Scene is the input of templates. Objects of Kubernetes are in their JSON form.
type Scene struct {
	Token, URL  string
	Environment map[string]string
	// State is all that the simulated cloud has.
	State           any
	Services, Nodes []any
	// Common is that of the file, and With that of the kind.
	Common, With map[string]any
	// Service is the one that it is about, Kind the name of its kind and its own, and Number counts them.
	Service any
	Kind    string
	Number  int
	// Answers and AnswerHeaders are those of earlier requests, by their names: of this Service, and those that came before all.
	Answers       map[string]any
	AnswerHeaders map[string]map[string]string
	// Answer is that of the request whose end is waited for, and Item one of those that a request is made for.
	Answer, Item any
}

// ReadTakeover returns what a provider's cloud is taken over from; root is the root of the checkout.
func ReadTakeover(root string, p registry.Provider) (Takeover, error) {
	path := filepath.Join("providers", p.Name, "testdata", "takeover.yaml")
	var all Takeover
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return all, fmt.Errorf("%s is missing; docs/developing-a-provider.md says what is in it: %w", path, err)
	}
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		return all, fmt.Errorf("%s: %w", path, err)
	}
	if err := errors.Join(all.problems(), all.unknownTemplates(string(text))); err != nil {
		return all, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

// templateUse matches where a template uses another one, which is looked up only when it is carried out.
var templateUse = regexp.MustCompile(`\b(?:include|template) "([^"]+)"`)

func (l Takeover) unknownTemplates(text string) (err error) {
	for _, use := range templateUse.FindAllStringSubmatch(text, -1) {
		if _, known := l.Templates[use[1]]; !known {
			err = errors.Join(err, fmt.Errorf("it uses a template %q that is not there", use[1]))
		}
	}
	return err
}

// problems lists missing parts, and names that do not exist.
func (l Takeover) problems() error {
	if l.None != "" || l.HeldBy != "" {
		return nil
	}
	var all []error
	missing := func(bad bool, what string) {
		if bad {
			all = append(all, fmt.Errorf("%s is missing", what))
		}
	}
	missing(len(l.Kinds) == 0, "kinds")
	missing(l.Node == "", "node")
	missing(len(l.Requests) == 0, "requests")
	missing(l.Status == "", "status")
	missing(l.WayBack.None == "" && len(l.WayBack.Requests) == 0, "wayBack.requests, or in wayBack.none why there are none,")
	missing(l.WayBack.Finds == "", "wayBack.finds")
	names := map[string]bool{}
	for _, r := range l.Requests {
		names[r.Name] = true
	}
	for kind, k := range l.Kinds {
		if _, known := l.Clusters[k.Cluster]; !known && k.Cluster != "" {
			all = append(all, fmt.Errorf("kinds.%s names a cluster %q that is not there", kind, k.Cluster))
		}
		for _, name := range slices.Concat(slices.Collect(maps.Keys(k.Over)), k.Without) {
			if !names[name] {
				all = append(all, fmt.Errorf("kinds.%s names a request %q that is not there", kind, name))
			}
		}
	}
	return errors.Join(all...)
}

// Cluster is one of the clusters, with the base below it.
func (l Takeover) Cluster(name string) LeftCluster {
	c, more := l.Base, l.Clusters[name]
	c.Cloud = slices.Concat(c.Cloud, more.Cloud)
	c.CloudConfig += more.CloudConfig
	c.Values, _ = Merged(toAny(c.Values), toAny(more.Values)).(map[string]any)
	c.Arguments = slices.Concat(c.Arguments, more.Arguments)
	c.Environment = maps.Clone(c.Environment)
	if c.Environment == nil {
		c.Environment = map[string]string{}
	}
	maps.Copy(c.Environment, more.Environment)
	c.Objects += more.Objects
	c.Prepare = slices.Concat(c.Prepare, more.Prepare)
	c.Queues = slices.Concat(c.Queues, more.Queues)
	return c
}

func toAny(m map[string]any) any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

// KindsOf are the names of the kinds in a cluster: those whose objects stay come first.
func (l Takeover) KindsOf(cluster string) []string {
	var names []string
	for name, k := range l.Kinds {
		if k.Cluster == cluster {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if stays := l.Kinds[a].Stays != ""; stays != (l.Kinds[b].Stays != "") {
			if stays {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return names
}

// Merged is a value with another one over it: objects are merged, a null takes a field away, and everything else is replaced.
func Merged(base, over any) any {
	b, isObject := base.(map[string]any)
	o, alike := over.(map[string]any)
	if !alike || !isObject {
		return over
	}
	all := maps.Clone(b)
	for key, value := range o {
		if value == nil {
			delete(all, key)
			continue
		}
		all[key] = Merged(all[key], value)
	}
	return all
}

// Text executes a template.
func (l Takeover) Text(text string, s Scene) (string, error) {
	t := template.New("takeover").Option("missingkey=error").Funcs(functions)
	t.Funcs(template.FuncMap{"include": func(name string, data any) (string, error) { // what a template gives, for other functions
		var out strings.Builder
		err := t.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}})
	for name, part := range l.Templates {
		if _, err := t.New(name).Parse(part); err != nil {
			return "", fmt.Errorf("template %s: %w", name, err)
		}
	}
	if _, err := t.New("this").Parse(text); err != nil {
		return "", fmt.Errorf("parsing %q: %w", text, err)
	}
	var out bytes.Buffer
	if err := t.ExecuteTemplate(&out, "this", s); err != nil {
		return "", fmt.Errorf("carrying out %q: %w", text, err)
	}
	return out.String(), nil
}

// Value executes a template of YAML and parses the result.
func (l Takeover) Value(text string, s Scene) (any, error) {
	rendered, err := l.Text(text, s)
	if err != nil {
		return nil, err
	}
	var v any
	if err := yaml.Unmarshal([]byte(rendered), &v); err != nil {
		return nil, fmt.Errorf("%w in:\n%s", err, rendered)
	}
	return v, nil
}

// Filled is a value whose texts are templates.
func (l Takeover) Filled(v any, s Scene) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		all := map[string]any{}
		for key, value := range v {
			filled, err := l.Filled(value, s)
			if err != nil {
				return nil, err
			}
			all[key] = filled
		}
		return all, nil
	case []any:
		all := make([]any, len(v))
		for i, value := range v {
			filled, err := l.Filled(value, s)
			if err != nil {
				return nil, err
			}
			all[i] = filled
		}
		return all, nil
	case string:
		return l.Text(v, s)
	}
	return v, nil
}

// Into decodes what a template of YAML gives, and takes no field that is not there.
func (l Takeover) Into(text string, s Scene, out any) error {
	rendered, err := l.Text(text, s)
	if err != nil {
		return err
	}
	if err := yaml.UnmarshalStrict([]byte(rendered), out); err != nil {
		return fmt.Errorf("%w in:\n%s", err, rendered)
	}
	return nil
}

// Body is the body of a request of a kind.
func (l Takeover) Body(r Request, k LeftKind, s Scene) (any, error) {
	name := r.Name
	if r.Like != "" {
		i := slices.IndexFunc(l.Requests, func(other Request) bool { return other.Name == r.Like })
		if i < 0 {
			return nil, fmt.Errorf("request %s is like %q, which is not there", name, r.Like)
		}
		name, r.Body = r.Like, l.Requests[i].Body
	}
	var body any // nil where it has none
	if r.Body == "" {
		return body, nil
	}
	body, err := l.Value(r.Body, s)
	if over := k.Over[name]; err == nil && over != "" {
		var more any
		more, err = l.Value(over, s)
		body = Merged(body, more)
	}
	if err != nil {
		return nil, fmt.Errorf("the body of %s: %w", name, err)
	}
	return body, nil
}

// functions are those of templates.
var functions = template.FuncMap{
	"lower":   strings.ToLower,
	"replace": func(old, with, text string) string { return strings.ReplaceAll(text, old, with) },
	"cut":     func(n int, text string) string { return text[:min(n, len(text))] },
	"json": func(v any) (string, error) {
		text, err := json.Marshal(v)
		return string(text), err
	},
	"md5": func(text string) string {
		sum := md5.Sum([]byte(text)) //nolint:gosec // see the import
		return hex.EncodeToString(sum[:])
	},
	"or0": func(v any, otherwise any) any {
		if v == nil {
			return otherwise
		}
		return v
	},
	"at": func(v any, path ...string) any { // nil where it is not there, unlike what templates have themselves
		for _, key := range path {
			m, _ := v.(map[string]any)
			v = m[key]
		}
		return v
	},
	"last": func(path string) string { return path[strings.LastIndex(path, "/")+1:] },
	"without": func(v map[string]any, keys ...string) any {
		v = maps.Clone(v)
		for _, key := range keys {
			delete(v, key)
		}
		return v
	},
	"yaml": func(text string) (v any, err error) {
		err = yaml.Unmarshal([]byte(text), &v)
		return v, err
	},
	"merged": func(base, over any) any {
		if over == nil {
			return base
		}
		return Merged(base, over)
	},
	"has": func(part, text string) bool { return strings.Contains(text, part) },
}

// Sorted is a value whose lists at the paths are sorted by their text: their order says nothing.
func Sorted(v any, unordered []string) any { return sorted(v, "", unordered) }

func sorted(v any, path string, unordered []string) any {
	switch v := v.(type) {
	case map[string]any:
		all := map[string]any{}
		for key, value := range v {
			all[key] = sorted(value, strings.TrimPrefix(path+"."+key, "."), unordered)
		}
		return all
	case []any:
		all := make([]any, len(v))
		for i, value := range v {
			all[i] = sorted(value, path+"[]", unordered)
		}
		if slices.Contains(unordered, path) {
			slices.SortFunc(all, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		return all
	}
	return v
}
