package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestStated(t *testing.T) {
	t.Parallel()
	rows := []row{
		{limitedBuild{title: "all clouds", limit: 78}, 75*mib + mib/2},
		{limitedBuild{title: "one alone", limit: 45}, 44*mib + mib/2 - 1},
	}
	table := tableHead + rows[0].String() + rows[1].String()
	assert.Equal(t, tableHead+"| all clouds | 76 | 78 |\n| one alone | 44 | 45 |\n", table)

	for _, test := range []struct {
		name, old, new string
		stated         bool
	}{
		{"as built", "", "", true},
		{"rounded the other way", "| 44 |", "| 45 |", true},
		{"down", "| 76 |", "| 75 |", true},
		{"grown", "| 76 |", "| 74 |", false},
		{"shrunk", "| 44 |", "| 46 |", false},
		{"another limit", "| 45 |", "| 46 |", false},
		{"another build", "one alone", "two alone", false},
		{"no number", "| 44 |", "| x |", false},
		{"a cell more", "| 44 |", "| 44 | 44 |", false},
		{"a row less", rows[1].String(), "", false},
		{"a row more", rows[1].String(), rows[1].String() + rows[1].String(), false},
		{"no head", tableHead, "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.stated, isStated(strings.Replace(table, test.old, test.new, 1), rows))
		})
	}
}
