package store

// Operation implements [Op].
func (Put) Operation() {}

// Operation implements [Op].
func (Delete) Operation() {}

// Operation implements [Op].
func (Range) Operation() {}

// Operation implements [Op].
func (Txn) Operation() {}

// Operation implements [Op].
func (DrawToken) Operation() {}
