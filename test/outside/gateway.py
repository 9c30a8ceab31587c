"""Runs etcd3gw's live tests with the API under /v3/, and reports as Go does."""

import sys
import time
import unittest

from etcd3gw.client import Etcd3Client

original = Etcd3Client.__init__


def with_v3(self, *args, **kwargs):
    kwargs.setdefault('api_path', '/v3/')
    original(self, *args, **kwargs)


Etcd3Client.__init__ = with_v3


class Lines(unittest.TestResult):
    """Prints a line for each test, in the form of Go's testing package."""

    def startTest(self, test):
        super().startTest(test)
        self.began, self.word = time.monotonic(), 'PASS'
        print('=== RUN   ' + name(test), flush=True)

    def stopTest(self, test):
        super().stopTest(test)
        took = time.monotonic() - self.began
        print('--- %s: %s (%.2fs)' % (self.word, name(test), took), flush=True)

    def spoil(self, word, err):
        self.word = word
        print(err if isinstance(err, str) else self._exc_info_to_string(err, self))

    def addError(self, test, err=None, details=None):
        self.spoil('FAIL', err or str(details))

    def addFailure(self, test, err=None, details=None):
        self.spoil('FAIL', err or str(details))

    def addSkip(self, test, reason=None, details=None):
        self.spoil('SKIP', reason or str(details))


def name(test):
    return test.id().rsplit('.', 1)[-1]


# The tests look for a server when they are loaded.
suite = unittest.defaultTestLoader.loadTestsFromName('etcd3gw.tests.test_etcd3gw')
result = Lines()
suite.run(result)
sys.exit(0)
