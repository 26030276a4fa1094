package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"go.yaml.in/yaml/v3"
)

// step is the time between two scrapes, and between two evaluations of the rules.
const step = 30 * time.Second

// evaluation is a time in which each target shows what was scraped of it once.
type evaluation struct {
	from, to time.Time
	engine   *promql.Engine
	series   []series
}

type series struct {
	labels labels.Labels
	value  float64
}

func newEvaluation(from time.Time, hold time.Duration) *evaluation {
	return &evaluation{from: from, to: from.Add(hold), engine: promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: parser.NewParser(parser.Options{}),
	})}
}

// add takes over the text of a scrape; labels of the target win over those of the same name, as they do in Prometheus.
func (e *evaluation) add(text []byte, target string) error {
	more, err := labelsOf(target)
	if err != nil {
		return err
	}
	p := textparse.NewPromParser(text, labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := p.Series()
		var have labels.Labels
		p.Labels(&have)
		b := labels.NewBuilder(have)
		for name, text := range more {
			b.Set(name, text)
		}
		e.series = append(e.series, series{b.Labels(), value})
	}
}

// Querier implements storage.Queryable.
func (e *evaluation) Querier(from, to int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		var times []chunks.Sample
		found := &seriesList{}
		for at := e.from; !at.After(e.to); at = at.Add(step) {
			if at.UnixMilli() >= from && at.UnixMilli() <= to {
				times = append(times, sample{at: at.UnixMilli()})
			}
		}
		for _, s := range e.series {
			if slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
				continue
			}
			samples := make([]chunks.Sample, len(times))
			for i, at := range times {
				samples[i] = sample{at.T(), s.value}
			}
			found.all = append(found.all, storage.NewListSeries(s.labels, samples))
		}
		return found
	}}, nil
}

// evaluateRange evaluates an expression at each step.
func (e *evaluation) evaluateRange(ctx context.Context, expression string) (promql.Matrix, error) {
	q, err := e.engine.NewRangeQuery(ctx, e, nil, expression, e.from, e.to, step)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expression, err)
	}
	defer q.Close()
	matrix, err := q.Exec(ctx).Matrix()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expression, err)
	}
	return slices.Clone(matrix), nil
}

// alerts returns the alerts that ring at the end: whose expressions have had a value for as long as they say.
func (e *evaluation) alerts(ctx context.Context, file string) (map[string][]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var content struct {
		Groups []struct {
			Rules []struct {
				Alert string
				Expr  string
				For   string
			}
		}
	}
	if err := yaml.Unmarshal(text, &content); err != nil {
		return nil, err
	}
	firing := map[string][]string{}
	for _, group := range content.Groups {
		for _, rule := range group.Rules {
			pending := time.Duration(0)
			if rule.For != "" {
				if pending, err = time.ParseDuration(rule.For); err != nil {
					return nil, fmt.Errorf("%s: %w", rule.Alert, err)
				}
			}
			matrix, err := e.evaluateRange(ctx, rule.Expr)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", rule.Alert, err)
			}
			for _, s := range matrix {
				if e.isCurrent(s.Floats) && e.heldFor(s.Floats) >= pending {
					firing[rule.Alert] = append(firing[rule.Alert], s.Metric.String())
				}
			}
		}
	}
	return firing, nil
}

// heldFor is for how long a series has had values without a gap until its last one.
func (*evaluation) heldFor(points []promql.FPoint) time.Duration {
	first := len(points) - 1
	for first > 0 && points[first].T-points[first-1].T == step.Milliseconds() {
		first--
	}
	return time.Duration(points[len(points)-1].T-points[first].T) * time.Millisecond
}

func (e *evaluation) isCurrent(points []promql.FPoint) bool {
	return len(points) > 0 && e.to.UnixMilli()-points[len(points)-1].T < step.Milliseconds()
}

// variable is one of a dashboard; all of them stand for everything here.
var variable = regexp.MustCompile(`\$\{?\w+\}?`)

// dashboard returns how many series each expression of a dashboard has at the end.
func (e *evaluation) dashboard(ctx context.Context, file string) (map[string]int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var content struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &content); err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, panel := range content.Panels {
		for _, target := range panel.Targets {
			matrix, err := e.evaluateRange(ctx, variable.ReplaceAllString(target.Expr, ".*"))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", panel.Title, err)
			}
			counts[target.Expr] = len(slices.DeleteFunc(matrix, func(s promql.Series) bool { return !e.isCurrent(s.Floats) }))
		}
	}
	return counts, nil
}

// seriesList implements storage.SeriesSet.
type seriesList struct {
	all []storage.Series
	at  int
}

func (s *seriesList) Next() bool                      { s.at++; return s.at <= len(s.all) }
func (s *seriesList) At() storage.Series              { return s.all[s.at-1] }
func (*seriesList) Err() error                        { return nil }
func (*seriesList) Warnings() annotations.Annotations { return nil }

// sample implements chunks.Sample.
type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                    { return s.at }
func (sample) ST() int64                     { return 0 }
func (s sample) F() float64                  { return s.value }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample         { return s }
