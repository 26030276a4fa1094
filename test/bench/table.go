package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

const serviceNotes = `
"floor" is one write for each load balancer that must change, and "ratio" how many writes there were for each of these; a cloud whose
load balancers consist of several objects has more than one, a cloud with shared pools less. Time ends with the last write to the
cloud, and that of a creation when every Service has its address. It contains that of kube-apiserver and of the simulated cloud on the
same cores. Memory is what the program holds in main memory at the end of a phase, and peak the most that it held, the pages of the
binary itself included.`

// header is the table's head; rows have the same columns.
func header() string {
	columns := []string{
		"load balancers", "nodes", "change", "time", "reads", "writes", "floor", "ratio", "Kubernetes requests", "CPU", "memory", "peak",
	}
	return "| " + strings.Join(columns, " | ") + " |\n|" + strings.Repeat(" --- |", len(columns))
}

func row(services, nodes int, p phase) string {
	floor := "-"
	if p.floor > 0 {
		floor = strconv.Itoa(p.floor)
	}
	return fmt.Sprintf("| %d | %d | %s | %.1f s | %d | %d | %s | %s | %.0f | %.1f s | %.0f MiB | %.0f MiB |", services, nodes, p.name, p.took.Seconds(),
		p.reads, p.writes, floor, p.ratio(), p.kube, p.cpu.Seconds(), mib(p.memory), mib(p.peak))
}

// runServices measures load balancers, prints what it finds, and writes it down if that is asked for.
func runServices(ctx context.Context, stage *harness.Stage, b bench, numbers []int) error {
	if len(numbers) == 0 {
		return nil
	}
	if _, ok, err := expectationsOf(b.provider); err != nil || !ok {
		fmt.Printf("%s has no load balancers to measure.\n", b.provider)
		return err
	}
	conditions := fmt.Sprintf("%s, %d nodes, a call takes %s and the cloud works %s on a change, limits on calls %s",
		b.provider, b.serviceNodes, b.latency, b.activation, onOff(b.serviceLimits))
	fmt.Printf("%s\n\n%s\n", conditions, header())
	var rows []string
	for _, n := range numbers {
		phases, err := measureServices(ctx, stage, b, n)
		if err != nil {
			return err
		}
		for _, p := range phases {
			rows = append(rows, row(n, b.serviceNodes, p))
		}
	}
	fmt.Println(serviceNotes)
	if b.page == "" {
		return nil
	}
	text, err := os.ReadFile(b.page)
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	section := conditions + ", " + time.Now().UTC().Format(time.DateOnly) + ":\n\n" + header() + "\n" + strings.Join(rows, "\n")
	written, err := replaced(string(text), fmt.Sprintf("%s, %d nodes", b.provider, b.serviceNodes), section)
	if err != nil {
		return fmt.Errorf("%s: %w", b.page, err)
	}
	if err := os.WriteFile(b.page, []byte(written), 0o600); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

// replaced puts measurements into a page: in the place of the former ones of the same provider and number of nodes, else after all others.
func replaced(page, what, section string) (string, error) {
	const end = "<!-- end of measurements -->"
	first, last := "<!-- measured: "+what+" -->", "<!-- measured -->"
	section = first + "\n" + section + "\n" + last + "\n"
	before, rest, found := strings.Cut(page, first+"\n")
	if found {
		_, after, whole := strings.Cut(rest, last+"\n")
		if !whole {
			return "", fmt.Errorf("the line %q is missing after %q", last, first)
		}
		return before + section + after, nil
	}
	before, after, found := strings.Cut(page, end)
	if !found {
		return "", fmt.Errorf("the line %q is missing", end)
	}
	return before + section + "\n" + end + after, nil
}
