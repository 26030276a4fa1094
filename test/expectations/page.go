package expectations

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// PageExample is a Service on a cloud's page, and what it gives.
type PageExample struct {
	Annotations map[string]string `json:"annotations"`
	Example     `json:",inline"`
}

// PageNames are the names of the Services on a cloud's page.
func PageNames(p registry.Provider) []string {
	switch {
	case p.Features.LoadBalancers != registry.Done:
		return nil
	case p.Features.Internal != registry.Done:
		return []string{"public"}
	}
	return []string{"public", "internal"}
}

// PageBlocks returns what stands between fences in a generated section of a provider's page; language is the word behind the fence.
func PageBlocks(root, provider, section, language string) ([]string, error) {
	path := filepath.Join(root, "docs", "providers", provider+".md")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a page: %w", err)
	}
	_, after, found := strings.Cut(string(text), "<!-- begin "+section+":")
	inside, _, ended := strings.Cut(after, "<!-- end "+section+" -->")
	if !found || !ended {
		return nil, fmt.Errorf("%s has no section %s", path, section)
	}
	var blocks []string
	for _, block := range strings.Split(inside, "```"+language+"\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		blocks = append(blocks, block)
	}
	return blocks, nil
}
