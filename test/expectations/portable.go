package expectations

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// examplesFolder has the manifests that every cloud serves as they are, or refuses.
const examplesFolder = "docs/examples/portable"

// Portable holds a cloud's expected results for the manifests in docs/examples/portable.
type Portable struct {
	// Prepare makes in the simulated cloud what the defaults name.
	Prepare []Step `json:"prepare"`
	// Values are further values of the chart.
	Values map[string]any `json:"values"`
	// Defaults are those of the Services, as the chart's value serviceDefaults has them.
	Defaults []Default `json:"defaults"`
	// Examples are by the names of the manifests.
	Examples map[string]Example `json:"examples"`
}

// Step is a call of the simulated cloud's API, or one of the simulator's own actions.
type Step struct {
	// Action is the name of an action of the simulator.
	Action string `json:"action"`
	// Method and Path are those of a call.
	Method string `json:"method"`
	Path   string `json:"path"`
	// Body is sent with either.
	Body map[string]any `json:"body"`
}

// Default is an item of the defaults of Services.
type Default struct {
	LoadBalancerClass string            `json:"loadBalancerClass"`
	Annotations       map[string]string `json:"annotations"`
}

// Example is the expected result of a manifest on a cloud.
type Example struct {
	// Gives says it for the documentation, and State is what the simulated cloud holds then: each object has the fields that are
	// named here, and each list the items. ${nodePort} stands for that of the first port.
	Gives string         `json:"gives"`
	State map[string]any `json:"state"`
	// Address is a regular expression that the first address in the status matches, unless the manifest names a hostname.
	Address string `json:"address"`
	// Warns are words of events about what has no effect.
	Warns []string `json:"warns"`
	// Refused are the words with which it is refused; nothing is made then.
	Refused string `json:"refused"`
}

// Examples are the names of the manifests; root is the root of the checkout.
func Examples(root string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(root, examplesFolder))
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a cloud's own repository has none
		return nil, fmt.Errorf("looking for manifests: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".yaml"); ok {
			names = append(names, name)
		}
	}
	return names, nil
}

// ReadForDocs returns what a provider's file says: nothing where it cannot be read, for Read reports what is wrong with it.
func ReadForDocs(root, provider string) Cloud {
	var c Cloud
	text, err := os.ReadFile(filepath.Join(root, "providers", provider, "testdata", "expectations.yaml"))
	if err != nil || yaml.Unmarshal(text, &c) != nil {
		return Cloud{}
	}
	return c
}

// ExamplePath is where the manifest of a name is.
func ExamplePath(root, name string) string { return filepath.Join(root, examplesFolder, name+".yaml") }

// problems lists missing expectations for the manifests; path is the file to name.
func (p Portable) problems(path string, names []string) []error {
	var all []error
	for _, name := range names {
		e, told := p.Examples[name]
		switch served, refused := e.Gives != "" && (len(e.State) > 0 || e.Address != ""), e.Refused != ""; {
		case !told:
			all = append(all, fmt.Errorf(
				"%s: portable.examples.%s is missing; say what %s/%s.yaml gives on this cloud (gives and state), or with which words it is refused (refused)",
				path, name, examplesFolder, name))
		case served == refused || (refused && (e.Gives != "" || len(e.State) > 0)):
			all = append(all, fmt.Errorf("%s: portable.examples.%s has either gives and state (or address, where there is no cloud outside of the cluster), or refused", path, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Examples)) {
		if len(names) > 0 && !slices.Contains(names, name) {
			all = append(all, fmt.Errorf("%s: portable.examples.%s is about a manifest that %s does not have", path, name, examplesFolder))
		}
	}
	return all
}

// StateFor is the state with what the API server chose for the Service: its first node port and its UID.
func (e Example) StateFor(s *v1.Service) any {
	return replaced(e.State, strings.NewReplacer("${nodePort}", strconv.Itoa(int(s.Spec.Ports[0].NodePort)), "${uid}", string(s.UID)))
}

func replaced(v any, r *strings.Replacer) any {
	switch v := v.(type) {
	case map[string]any:
		all := map[string]any{}
		for key, value := range v {
			all[key] = replaced(value, r)
		}
		return all
	case []any:
		all := make([]any, len(v))
		for i, value := range v {
			all[i] = replaced(value, r)
		}
		return all
	case string:
		return r.Replace(v)
	}
	return v
}

// Lacks says what of a state that is wanted another one lacks; "" means nothing. Objects may have further fields, and lists further
// items in any order; no two wanted items are the same one.
func Lacks(want, have any) string { return lacks("", want, have) }

func lacks(path string, want, have any) string {
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s is %v, and not the object %v", place(path), have, w)
		}
		for _, key := range slices.Sorted(maps.Keys(w)) {
			if missing := lacks(path+"."+key, w[key], h[key]); missing != "" {
				return missing
			}
		}
		return ""
	case []any:
		h, ok := have.([]any)
		if !ok {
			return fmt.Sprintf("%s is %v, and no list", place(path), have)
		}
		return lacksItems(path, w, h)
	}
	if fmt.Sprint(want) != fmt.Sprint(have) {
		return fmt.Sprintf("%s is %v, and not %v", place(path), have, want)
	}
	return ""
}

// lacksItems finds an item of its own for each that is wanted, the first that fits.
func lacksItems(path string, want, have []any) string {
	left := slices.Clone(have)
	for i, w := range want {
		at := fmt.Sprintf("%s[%d]", path, i)
		var reasons []string
		found := slices.IndexFunc(left, func(h any) bool {
			missing := lacks(at, w, h)
			reasons = append(reasons, missing)
			return missing == ""
		})
		if found < 0 {
			return fmt.Sprintf("%s is missing (%s)", place(at), strings.Join(reasons, "; "))
		}
		left = slices.Delete(left, found, found+1)
	}
	return ""
}

func place(path string) string { return strings.TrimPrefix(path, ".") }
