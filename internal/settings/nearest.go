package settings

// Nearest returns the name that was most likely meant, or nothing.
func Nearest(typed string, names []string) string {
	best, least := "", max(len(typed)/3, 2)+1
	for _, n := range names {
		// A name of two letters is two typos away from anything.
		if d := Distance(typed, n); d < least && d < len(n) && d < len(typed) {
			best, least = n, d
		}
	}
	return best
}

// Distance counts the letters to insert, delete or replace to make b of a.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
