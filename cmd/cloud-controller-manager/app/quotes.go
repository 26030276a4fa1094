package app

import (
	"fmt"

	yamlnode "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// quoteTexts returns a problem for each annotation and label whose value is not a string, such as an unquoted true, because the API server
// refuses it. It converts them to strings, so that the other checks can go on.
func quoteTexts(object *yamlnode.Node) (problems []error) {
	for _, of := range []struct{ key, name string }{{"annotations", "annotation"}, {"labels", "label"}} {
		pairs := resolveAlias(child(object, "metadata", of.key))
		if pairs == nil || pairs.Kind != yamlnode.MappingNode {
			continue
		}
		for i := 0; i+1 < len(pairs.Content); i += 2 {
			key, text := pairs.Content[i], resolveAlias(pairs.Content[i+1])
			if text == nil || text.Kind != yamlnode.ScalarNode || text.Style != 0 || text.Tag == "!!null" {
				continue
			}
			if !readAsText(text.Value) {
				problems = append(problems, &schema.Problem{
					Place:  of.name + " " + key.Value,
					Reason: fmt.Sprintf(`%s without quotes is no text, and the API server refuses it; write %q`, text.Value, text.Value),
				})
			}
			text.Tag, text.Style = "!!str", yamlnode.DoubleQuotedStyle
		}
	}
	return problems
}

// readAsText reports whether kubectl reads an unquoted value as a string. It knows more words for true and false than our decoder, such as
// yes and off.
func readAsText(value string) bool {
	var v any
	if err := yaml.Unmarshal([]byte(value), &v); err != nil {
		return true // the decoder of the whole file reports the fault
	}
	_, text := v.(string)
	return text
}

// resolveAlias follows an alias.
func resolveAlias(node *yamlnode.Node) *yamlnode.Node {
	if node != nil && node.Kind == yamlnode.AliasNode {
		return node.Alias
	}
	return node
}
