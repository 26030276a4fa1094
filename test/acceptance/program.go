package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// maxCommand bounds one of the program's commands.
const maxCommand = 5 * time.Minute

// command runs one of the program's read-only commands as the release is set up. Findings make it fail as well: whoever asks reads the
// output then.
func (s *suite) command(ctx context.Context, input []byte, name string, args ...string) (stdout []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxCommand)
	defer cancel()
	all := slices.Concat([]string{name}, s.setting.shared, args, s.Args, []string{"-o", "json"})
	cmd := exec.CommandContext(ctx, s.Program, all...)
	cmd.Env, cmd.Stdin = s.setting.env, bytes.NewReader(input)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("%s: %w: %s", name, err, lastLine(problems.String()))
	}
	return out.Bytes(), nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// plannedService is the output of `plan` for a Service.
type plannedService struct {
	Service  string             `json:"service"`
	Planned  []contract.Planned `json:"planned"`
	Findings []contract.Finding `json:"findings"`
	Error    string             `json:"error"`
}

// manifest is a Service as a file has it.
func manifest(service *v1.Service) ([]byte, error) {
	plain := &v1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: service.Name, Namespace: service.Namespace, Labels: service.Labels, Annotations: service.Annotations},
		Spec:       service.Spec,
	}
	text, err := json.Marshal(plain)
	if err != nil {
		return nil, fmt.Errorf("writing the manifest: %w", err)
	}
	return text, nil
}

// plan asks what would be done in the cloud for a Service. It is empty where the cloud has what the Service asks for.
func (s *suite) plan(ctx context.Context, service *v1.Service) ([]contract.Planned, error) {
	planned, err := s.planned(ctx, service)
	return planned.Planned, err
}

func (s *suite) planned(ctx context.Context, service *v1.Service) (plannedService, error) {
	text, err := manifest(service)
	if err != nil {
		return plannedService{}, err
	}
	out, failure := s.command(ctx, text, "plan", "--kubeconfig="+s.Kubeconfig, s.setting.clusterName, "-f", "-")
	var all []plannedService
	if err := json.Unmarshal(out, &all); err != nil || len(all) != 1 {
		return plannedService{}, errors.Join(failure, fmt.Errorf("plan prints %q", out))
	}
	if all[0].Error != "" {
		return plannedService{}, errors.New("plan: " + all[0].Error)
	}
	return all[0], nil
}

// words say in a line what is planned.
func words(planned []contract.Planned) string {
	var parts []string
	for _, p := range planned {
		parts = append(parts, strings.TrimSpace(p.Action+" "+p.Object+" "+p.Detail))
	}
	return strings.Join(parts, "; ")
}

// refusal is why a cloud does not take a Service.
type refusal string

// Error implements error.
func (r refusal) Error() string { return string(r) }

// judge runs `validate` on a Service: what the cloud refuses is a refusal, what has no effect a list of words.
func (s *suite) judge(ctx context.Context, service *v1.Service) (ignored []string, err error) {
	text, err := manifest(service)
	if err != nil {
		return nil, err
	}
	out, failure := s.command(ctx, text, "validate", "-f", "-")
	var verdict struct {
		Services int
		Findings []struct{ Severity, Message string }
	}
	if err := json.Unmarshal(out, &verdict); err != nil || verdict.Services != 1 {
		return nil, errors.Join(failure, fmt.Errorf("validate prints %q", out))
	}
	for _, f := range verdict.Findings {
		if f.Severity == "error" {
			return nil, refusal(f.Message)
		}
		ignored = append(ignored, f.Message)
	}
	return ignored, nil
}

// orphans are the objects in the cloud that carry the cluster's mark and belong to no Service. known is false where the cloud's
// provider cannot tell.
func (s *suite) orphans(ctx context.Context) (found map[string]contract.Orphan, known bool, err error) {
	out, failure := s.command(ctx, nil, "orphans", "--kubeconfig="+s.Kubeconfig, s.setting.clusterName)
	if failure != nil && strings.Contains(failure.Error(), contract.ErrNoOrphans.Error()) {
		return nil, false, nil
	}
	var list []contract.Orphan
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, true, errors.Join(failure, fmt.Errorf("orphans prints %q: %w", out, err))
	}
	found = map[string]contract.Orphan{}
	for _, o := range list {
		found[o.Kind+" "+o.ID] = o
	}
	return found, true, nil
}

// check is a line of `preflight`.
type check struct{ Check, Result, Message, Fix string }

func (s *suite) preflight(ctx context.Context) ([]check, error) {
	out, failure := s.command(ctx, nil, "preflight", "--kubeconfig="+s.Kubeconfig)
	var report struct{ Results []check }
	if err := json.Unmarshal(out, &report); err != nil {
		return nil, errors.Join(failure, fmt.Errorf("preflight prints %q", out))
	}
	return report.Results, nil
}
